"""The fire alarm: an area burns when its last minute was above 40 °C on average, with smoke."""

import os
from dataclasses import dataclass
from datetime import datetime

import headrace as hr

TOPICS = os.environ.get("FIRE_ALARM_TOPICS", "log:")  # or "kafka://localhost:9092/"
HOT, SMOKY = 40, 0.3  # °C, density


@dataclass
class Temperature:
    area: str
    celsius: float
    at: datetime


@dataclass
class Smoke:
    area: str
    density: float
    at: datetime


class FireAlarm(hr.KeyedProcess):
    """One state machine per area: it burns while it is both hot and smoky."""

    celsius = hr.value(float, default=0.0)
    density = hr.value(float, default=0.0)
    burning = hr.value(bool, default=False)
    output = "area string, alarm boolean, celsius double, density double, at timestamp"

    def on_average(self, row, ctx):
        self.celsius = row.celsius
        return self.judge(ctx.key, row.window_end)

    def on_smoke(self, row, ctx):
        self.density = row.density
        return self.judge(ctx.key, row.at)

    def judge(self, area, at):
        before, self.burning = self.burning, self.celsius > HOT and self.density > SMOKY
        if self.burning != before:
            return (area, self.burning, self.celsius, self.density, at)


job = hr.Job("fire-alarm")
sensors = {"format": "json", "time": "at", "delay": "2s", "max_skew": "1h"}
temperature = job.read(f"{TOPICS}temperature", schema=Temperature, **sensors)
smoke = job.read(f"{TOPICS}smoke", schema=Smoke, **sensors)

sound = temperature.where(hr.col("celsius").between(-50, 150)).key_by("area")
average = sound.window(hr.sliding("60s", every="5s")).agg(celsius=hr.mean("celsius"), n=hr.count())
alarms = hr.connect(by="area", average=average, smoke=smoke).process(FireAlarm(), unbounded=True)

alarms.write(f"{TOPICS}alarms")
average.write("files:.headrace/fire-alarm/averages")
average.late.write("files:.headrace/fire-alarm/late")

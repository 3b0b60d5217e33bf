// The figures of a job now, and how they have been.

import { get, path } from "../api.js";
import { h } from "../dom.js";
import { NONE, bytes, count, duration, exact, percent, plural, rate, seconds, short, time } from "../format.js";
import { empty, meter, panel, table, tile, tiles } from "../parts.js";
import { Plot } from "../plots.js";
import { recalled, remember } from "../theme.js";

const MINUTE = 60_000;
const RANGES = [["15 min", 15 * MINUTE], ["1 h", 60 * MINUTE], ["6 h", 360 * MINUTE], ["24 h", 1440 * MINUTE], ["7 d", 7 * 1440 * MINUTE]];
const NAME = "headrace.range";
const POINTS = 480;
const MOST_STATE = 5; // steps whose state is drawn

export class Overview {
  constructor(app, of) {
    const range = RANGES.find(([name]) => name === recalled(NAME)) ?? RANGES[0];
    Object.assign(this, { app, of, range, plots: null, loaded: 0, kept: "" });
  }

  stop() {
    for (const plot of this.plots ?? []) plot.stop();
  }

  refresh() {
    this.loaded = 0;
  }

  /** Fetched as often as a point of the plot is long. */
  async load(signal) {
    const every = Math.min(30_000, Math.max(1000, this.range[1] / POINTS));
    if (!this.of.job || Date.now() - this.loaded < every - 100) {
      if (!this.of.job) setTimeout(() => this.of.poll.now());
      return;
    }
    this.makePlots();
    const [until, range] = [Date.now(), this.range];
    const since = until - range[1];
    const names = [...new Set(this.plots.flatMap((plot) => plot.lines.map((line) => line.name)))].join(",");
    const found = await get(path(["jobs", this.of.name, "series"], { since, until, names, points: POINTS }), { signal });
    if (range !== this.range) return; // another one was chosen meanwhile
    this.loaded = Date.now();
    for (const plot of this.plots) plot.set(found.times, found.series, [since, until]);
  }

  makePlots() {
    const withState = (this.of.figures?.steps ?? []).filter((s) => s.state_rows !== null && s.state_rows !== undefined)
      .sort((a, b) => b.state_rows - a.state_rows).slice(0, MOST_STATE).map((s) => s.name).sort();
    const key = withState.join("\n");
    if (this.plots && key === this.kept) return;
    this.stop();
    this.kept = key;
    const draw = () => this.app.draw();
    const line = (name, label) => ({ name, label });
    this.plots = [
      new Plot({ id: "throughput", title: "Throughput", format: rate, draw, lines: [line("rate_in", "in"), line("rate_out", "out")] }),
      new Plot({ id: "latency", title: "Latency, from record time", format: duration, draw, lines: [line("latency.event.p50", "p50"), line("latency.event.p95", "p95"), line("latency.event.p99", "p99")] }),
      new Plot({ id: "lag", title: "Lag", format: short, draw, lines: [line("lag_rows", "rows that wait")] }),
      new Plot({ id: "watermark", title: "Watermark delay", format: seconds, draw, lines: [line("watermark_delay", "behind the clock")] }),
      new Plot({ id: "epoch", title: "Time of an epoch", format: duration, draw, lines: [line("took_ms", "planned to committed")] }),
      ...(withState.length ? [new Plot({ id: "state", title: "State, rows", format: short, draw, lines: withState.map((name) => line(`steps.${name}.state_rows`, name)) })] : []),
      new Plot({ id: "memory", title: "Memory", format: bytes, draw, lines: [line("memory.driver", "driver"), line("memory.jvm", "JVM"), line("memory.workers", "workers")] }),
    ];
  }

  choose(range) {
    this.range = range;
    this.loaded = 0;
    remember(NAME, range[0]);
    this.of.poll.now();
    this.app.draw();
  }

  view() {
    const { figures } = this.of;
    return [
      figures ? this.tiles(figures) : empty(NO_FIGURES),
      figures?.bottleneck ? h("p", { class: "hint-box", key: "bottleneck" }, h("strong", {}, "Bottleneck: ", figures.bottleneck.step), ". ", figures.bottleneck.why) : null,
      h("div", { class: "bar", key: "ranges" }, h("h2", {}, "History"), h("span", { class: "gap" }),
        h("div", { class: "segments", role: "group", "aria-label": "How far back" }, RANGES.map((range) =>
          h("button", { type: "button", "aria-pressed": String(range === this.range), onclick: () => this.choose(range) }, range[0])))),
      h("div", { class: "plots", key: "plots" }, (this.plots ?? []).map((plot) => plot.view())),
      figures ? [this.inputs(figures), this.outputs(figures)] : null,
    ];
  }

  tiles(f) {
    const { event } = f.latency ?? {};
    const states = f.steps.filter((s) => s.state_rows !== null && s.state_rows !== undefined);
    const sum = (name) => states.reduce((all, s) => all + (s[name] ?? 0), 0);
    const { totals = {} } = f;
    return tiles(
      tile("In", rate(f.rate_in), `${rate(f.rate_out)} out`),
      tile("Lag", f.lag_rows === null ? NONE : plural(f.lag_rows, "row"), f.lag_seconds ? `${seconds(f.lag_seconds)} to catch up` : " "),
      tile("Latency p95", duration(event?.p95), event ? `p50 ${duration(event.p50)} · p99 ${duration(event.p99)}` : " "),
      tile("Watermark delay", seconds(f.watermark_delay), f.watermark ? h("span", { title: exact(f.watermark) }, `at ${time(f.watermark)}`) : "no watermark yet"),
      tile("Capacity", meter(f.capacity, "of the time at work"), `an epoch takes ${duration(f.took_ms)}`),
      tile("State", plural(sum("state_rows"), "row"), bytes(sum("state_bytes"))),
      tile("Late", count(totals.late), percentOf(totals.late, totals.read), totals.late ? "warn" : ""),
      tile("Dead letters", count(totals.dead), percentOf(totals.dead, totals.read), totals.dead ? "bad" : ""));
  }

  inputs(f) {
    return panel("Inputs", table({
      caption: "Inputs", rows: f.inputs, key: (i) => i.name, columns: [
        { id: "name", title: "Input", cell: (i) => i.name },
        { id: "rate", title: "Rate", number: true, cell: (i) => rate(i.rate) },
        { id: "lag", title: "Lag", number: true, cell: (i) => short(i.lag_rows) },
        { id: "watermark", title: "Watermark", number: true, cell: (i) => h("span", { title: exact(i.watermark) }, time(i.watermark)) },
        { id: "splits", title: "Splits", number: true, cell: (i) => count(Array.isArray(i.splits) ? i.splits.length : i.splits) },
        ...["read", "used", "filtered", "late", "dead"].map((id) => ({ id, title: id[0].toUpperCase() + id.slice(1), number: true, cell: (i) => count(i[id]) })),
      ],
    }), h("p", { class: "note" }, "Read = used + filtered + late + dead, exactly, since the first start."));
  }

  outputs(f) {
    return panel("Outputs", table({
      caption: "Outputs", rows: f.outputs, key: (o) => o.name, columns: [
        { id: "name", title: "Output", cell: (o) => o.name },
        { id: "rate", title: "Rate", number: true, cell: (o) => rate(o.rate) },
        { id: "rows", title: "Rows written", number: true, cell: (o) => count(o.rows) },
      ],
    }));
  }
}

export const NO_FIGURES = "There are no figures yet: the job has not committed an epoch since it started.";
const percentOf = (part, whole) => (part && whole ? `${part / whole < 0.01 ? "under 1 %" : percent(part / whole)} of what was read` : " ");

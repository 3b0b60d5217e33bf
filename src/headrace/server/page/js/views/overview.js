// The figures of a job now, and how they have been.

import { get, path } from "../api.js";
import { h } from "../dom.js";
import { NONE, bytes, count, duration, exact, percent, plural, rate, seconds, short, time } from "../format.js";
import { empty, meter, panel, table, tile, tiles, when } from "../parts.js";
import { Plot } from "../plots.js";
import { recalled, remember } from "../theme.js";

const MINUTE = 60_000;
const RANGES = [["15 min", 15 * MINUTE], ["1 h", 60 * MINUTE], ["6 h", 360 * MINUTE], ["24 h", 1440 * MINUTE], ["7 d", 7 * 1440 * MINUTE]];
const NAME = "headrace.range";
const POINTS = 480;
const SHORTEST = 30_000; // of an axis, if a job is younger than the range
const GAP = 10_000; // milliseconds without a sample that may be by chance
const MOST_STATE = 5; // steps whose state is drawn
const PLOTS = [
  ["throughput", "Throughput", rate, [["rate_in", "in"], ["rate_out", "out"]]],
  ["lag", "Lag", short, [["lag_rows", "rows that wait"]]],
  ["watermark", "Watermark delay", seconds, [["watermark_delay", "behind the clock"]]],
  ["epoch", "Time of an epoch", duration, [["took_ms", "planned to committed"]]],
  ["capacity", "Capacity", percent, [["capacity", "of the time at work"]]],
  ["fates", "Late and dead, rows so far", short, [["totals.late", "late"], ["totals.dead", "dead"]]],
  ["memory", "Memory", bytes, [["memory.driver", "driver"], ["memory.jvm", "JVM"], ["memory.workers", "workers"]]],
];

export class Overview {
  constructor(app, of) {
    const range = RANGES.find(([name]) => name === recalled(NAME)) ?? RANGES[0];
    Object.assign(this, { app, of, range, plots: [] });
  }

  stop() {
    for (const plot of this.plots) plot.stop();
  }

  /** Fetched as often as a point of the plots is long. */
  get every() {
    return Math.min(30_000, Math.max(1000, this.range[1] / POINTS));
  }

  async load(signal) {
    this.makePlots();
    const [until, range] = [Date.now(), this.range];
    const since = Math.max(until - range[1], this.begin ?? 0);
    const names = [...new Set(this.plots.flatMap((plot) => plot.lines.map((line) => line.name)))].join(",");
    const found = await get(path(["jobs", this.of.name, "series"], { since, until, names, points: POINTS }), { signal });
    if (range !== this.range) return; // another one was chosen meanwhile
    const [first] = found.times;
    const isYoung = first > until - range[1] + SHORTEST;
    // a point is the last sample of its span, so the first sample may be a span before it
    this.begin = isYoung ? first - Math.ceil((until - since) / POINTS) : null;
    this.first = isYoung ? first : null;
    const from = isYoung ? Math.min(first, until - SHORTEST) : since;
    const [times, series] = withGaps(found, (until - since) / POINTS);
    for (const plot of this.plots) plot.set(times, series, [from, until]);
  }

  /** Which latency is known, and which steps have state, is known once there are figures. */
  makePlots() {
    if (!this.plots.length) this.plots = PLOTS.map(([id, ...more]) => this.plot(id, ...more));
    const figures = this.of.figures ?? { steps: [] };
    const from = latencyFrom(figures);
    this.replace("latency", `Latency, from ${from === "event" ? "record time" : "arrival"}`, duration, ["p50", "p95", "p99"].map((p) => [`latency.${from}.${p}`, p]), 1);
    const steps = withState(figures).sort((a, b) => b.state_rows - a.state_rows).slice(0, MOST_STATE).map((s) => s.name).sort();
    this.replace("state", "State, rows", short, steps.map((name) => [`steps.${name}.state_rows`, name]), this.plots.length);
  }

  /** A plot whose lines depend on the figures; without lines there is none. */
  replace(id, title, format, lines, at) {
    const old = this.plots.find((plot) => plot.id === id);
    if (old && old.lines.map((line) => line.name).join() === lines.map(([name]) => name).join()) return;
    old?.stop();
    this.plots = this.plots.filter((plot) => plot !== old);
    if (lines.length) this.plots.splice(at, 0, this.plot(id, title, format, lines));
  }

  plot(id, title, format, lines) {
    return new Plot({ id, title, format, lines: lines.map(([name, label]) => ({ name, label })), draw: () => this.app.draw() });
  }

  choose(range) {
    Object.assign(this, { range, begin: null });
    remember(NAME, range[0]);
    this.of.tabPoll.now();
    this.app.draw();
  }

  view() {
    const { figures } = this.of;
    return [
      figures ? this.tiles(figures) : empty(NO_FIGURES),
      figures ? this.limit(figures) : null,
      h("div", { class: "bar", key: "ranges" }, h("h2", {}, "History"),
        this.first ? h("span", { class: "note" }, "since ", when(this.first), "; there are no earlier samples") : null, h("span", { class: "gap" }),
        h("div", { class: "segments", role: "group", "aria-label": "How far back" }, RANGES.map((range) =>
          h("button", { type: "button", "aria-pressed": String(range === this.range), onclick: () => this.choose(range) }, range[0])))),
      h("div", { class: "plots", key: "plots" }, (this.plots).map((plot) => plot.view())),
      figures ? [this.inputs(figures), this.outputs(figures)] : null,
    ];
  }

  /** It is there also while nothing limits the job, so that nothing moves when something does. */
  limit({ bottleneck, capacity }) {
    return h("div", { class: "hint-box limit", key: "bottleneck" }, bottleneck
      ? h("p", {}, h("strong", {}, "Bottleneck: ", bottleneck.step), ": ", bottleneck.why, ".")
      : h("p", { class: "note" }, capacity == null ? "No bottleneck is known: the job does not run, or has just begun."
        : `No bottleneck: the job is at work ${percent(capacity)} of the time, and no step or output stands out.`));
  }

  tiles(f) {
    const latency = f.latency?.[latencyFrom(f)];
    const states = withState(f);
    const sum = (name) => states.reduce((all, s) => all + (s[name] ?? 0), 0);
    const { totals = {} } = f;
    return tiles(
      tile("In", rate(f.rate_in), `${rate(f.rate_out)} out`),
      tile("Lag", f.lag_rows === null ? NONE : plural(f.lag_rows, "row"), f.lag_seconds ? `the oldest for ${seconds(f.lag_seconds)}` : " "),
      tile("Latency p95", duration(latency?.p95), latency ? `p50 ${duration(latency.p50)} · p99 ${duration(latency.p99)}` : " "),
      tile("Watermark delay", seconds(f.watermark_delay), f.watermark ? h("span", { title: exact(f.watermark) }, `at ${time(f.watermark)}`) : "no watermark"),
      tile("Capacity", meter(f.capacity, "of the time at work"), `an epoch takes ${duration(f.took_ms)}`),
      tile("State", plural(sum("state_rows"), "row"), bytes(sum("state_bytes"))),
      tile("Late", count(totals.late), percentOf(totals.late, totals.read), totals.late ? "warn" : ""),
      tile("Dead letters", count(totals.dead), percentOf(totals.dead, totals.read), totals.dead ? "bad" : ""));
  }

  inputs(f) {
    return panel("Inputs", table({
      caption: "Inputs", steady: true, rows: f.inputs, key: (i) => i.name, columns: [
        { id: "name", title: "Input", cell: (i) => i.name },
        { id: "rate", title: "Rate", number: true, cell: (i) => rate(i.rate) },
        { id: "lag", title: "Lag", number: true, cell: (i) => short(i.lag_rows) },
        { id: "watermark", title: "Watermark", number: true, cell: (i) => h("span", { title: exact(i.watermark) }, time(i.watermark)) },
        { id: "splits", title: "Splits", number: true, cell: (i) => count(i.splits) },
        ...["read", "used", "filtered", "late", "dead", ...(f.inputs.some((i) => i.shed !== null) ? ["shed"] : [])].map((id) => ({ id, title: id[0].toUpperCase() + id.slice(1), number: true, cell: (i) => count(i[id]) })),
      ],
    }), h("p", { class: "note" }, `Read = used + filtered + late + dead${f.inputs.some((i) => i.shed !== null) ? " + shed" : ""}, exactly, since the first start.`));
  }

  outputs(f) {
    return panel("Outputs", table({
      caption: "Outputs", steady: true, rows: f.outputs, key: (o) => o.name, columns: [
        { id: "name", title: "Output", cell: (o) => o.name },
        { id: "rate", title: "Rate", number: true, cell: (o) => rate(o.rate) },
        { id: "rows", title: "Rows written", number: true, cell: (o) => count(o.rows) },
      ],
    }));
  }
}

/** Where no samples are, as while a job did not run, a line ends and begins again. */
function withGaps({ times, series }, step) {
  const between = times.slice(1).map((at, i) => at - times[i]);
  const usual = [...between].sort((a, b) => a - b)[between.length >> 1] ?? 0;
  const longest = Math.max(GAP, 3 * step, 3 * usual);
  const at = between.flatMap((long, i) => (long > longest ? [i + 1] : [])).reverse();
  if (!at.length) return [times, series];
  const cut = (values, fill) => at.reduce((all, i) => all.toSpliced(i, 0, fill(i)), values);
  return [cut(times, (i) => times[i] - between[i - 1] / 2),
    Object.fromEntries(Object.entries(series).map(([name, values]) => [name, cut(values, () => null)]))];
}

export const NO_FIGURES = "There are no figures yet: the job has not committed an epoch since it started.";
const latencyFrom = (f) => (f.latencies?.event?.count || !f.latencies?.ingest?.count ? "event" : "ingest");
const withState = (f) => f.steps.filter((s) => s.state_rows !== null);
const percentOf = (part, whole) => (part && whole ? `${part / whole < 0.01 ? "under 1 %" : percent(part / whole)} of what was read` : " ");

// What waits, where, and why: inputs, the time of an epoch by phase, and how busy each step is.

import { h } from "../dom.js";
import { count, duration, rate, seconds } from "../format.js";
import { empty, flow, meter, panel, table } from "../parts.js";
import { NO_FIGURES } from "./overview.js";

const PARTS = 6; // colours

/** The phases of Spark's trigger, which follow each other, and of the tasks that run in one of them (addBatch).
 * `triggerExecution` is the whole: what no phase accounts for is "other", as are the smallest ones. */
export function phasesOf(phases) {
  const named = Object.entries(phases).filter(([, ms]) => ms > 0);
  const isTasks = ([name]) => name === "source" || name.startsWith("level ");
  const spark = named.filter((one) => !isTasks(one) && one[0] !== "triggerExecution").sort((a, b) => b[1] - a[1]);
  const shown = spark.slice(0, PARTS - 1);
  const sum = (all) => all.reduce((total, [, ms]) => total + ms, 0);
  const other = Math.max(sum(spark), phases.triggerExecution ?? 0) - sum(shown);
  return { trigger: other > 0 ? [...shown, ["other", other]] : shown, tasks: named.filter(isTasks) };
}

function stack(title, parts) {
  const whole = parts.reduce((sum, [, ms]) => sum + ms, 0);
  if (!whole) return null;
  const colour = (i) => `part-${(i % PARTS) + 1}`;
  return h("div", { class: "phases", key: title }, h("h3", {}, title),
    h("div", { class: "stack", "aria-hidden": "true" }, parts.map(([name, ms], i) =>
      h("span", { key: name, class: `part ${colour(i)}`, title: `${name}: ${duration(ms)}`, vars: { "--share": (ms / whole).toFixed(4) } }))),
    h("dl", { class: "legend" }, parts.map(([name, ms], i) => h("div", { key: name },
      h("dt", {}, h("span", { class: `dot ${colour(i)}`, "aria-hidden": "true" }), name), h("dd", {}, duration(ms))))));
}

export class Backpressure {
  constructor(app, of) {
    Object.assign(this, { app, of });
  }

  view() {
    const f = this.of.figures;
    if (!f) return empty(NO_FIGURES);
    return [this.verdict(f), this.phases(f), this.steps(f), this.inputs(f)];
  }

  verdict(f) {
    const held = f.backpressure;
    if (!held) return h("div", { class: "hint-box", key: "verdict" }, h("p", { class: "fact" }, "The job does not run: what is here is of its last epoch."));
    return h("div", { class: `hint-box${held.held_back ? " warn" : ""}`, key: "verdict" },
      h("p", { class: "fact" }, held.held_back
        ? ["The inputs are held back: ", count(held.rows), " rows wait, so that an epoch takes no longer than it should."]
        : "Nothing is held back: every row that is there is read with the next epoch."),
      f.bottleneck ? h("p", { class: "hint" }, h("strong", {}, "Bottleneck: ", f.bottleneck.step), ": ", f.bottleneck.why, ".") : null);
  }

  phases(f) {
    const { trigger, tasks } = phasesOf(f.phases);
    if (!trigger.length && !tasks.length) return null;
    return panel("Where the time of an epoch goes",
      f.took_ms === null ? null : h("p", { class: "note" }, `The last epoch took ${duration(f.took_ms)}, from planning to commit.`),
      stack("Spark's last trigger, one after the other", trigger),
      stack("Its tasks, all together: they run at the same time, within addBatch", tasks));
  }

  steps(f) {
    const rows = [...f.steps].sort((a, b) => (b.busy ?? -1) - (a.busy ?? -1));
    return panel("Steps, the busiest first", table({
      caption: "Steps by how busy they are", steady: true, rows, key: (s) => `${s.name} ${s.level ?? ""}`, columns: [
        { id: "name", title: "Step", cell: (s) => s.name },
        { id: "kind", title: "Kind", cell: (s) => s.kind },
        { id: "busy", title: "Busy", number: true, cell: (s) => meter(s.busy) },
        { id: "execute", title: "For 1,000 rows", number: true, cell: (s) => duration(s.execute_ms) },
        { id: "process", title: "In an epoch", number: true, cell: (s) => duration(s.process_ms) },
        { id: "in", title: "In", number: true, cell: (s) => rate(flow(s).in) },
        { id: "out", title: "Out", number: true, cell: (s) => rate(flow(s).out) },
      ],
    }));
  }

  inputs(f) {
    return panel("What waits at the inputs", table({
      caption: "What waits at the inputs", steady: true, rows: f.inputs, key: (i) => i.name, columns: [
        { id: "name", title: "Input", cell: (i) => i.name },
        { id: "rate", title: "Rate", number: true, cell: (i) => rate(i.rate) },
        { id: "lag", title: "Rows that wait", number: true, cell: (i) => count(i.lag_rows) },
        { id: "seconds", title: "The oldest waits", number: true, cell: (i) => seconds(i.lag_seconds) },
      ],
    }));
  }
}

// The plan of a job, drawn, with what flows through it now: rates and watermarks on the lines, how busy
// each step is, and which one holds the others back.

import { get, jobPath } from "../api.js";
import { h } from "../dom.js";
import { count, duration, exact, percent, rate, seconds, short, bytes } from "../format.js";
import { layOut } from "../layout.js";
import { button, facts, flow, loading, meter, table } from "../parts.js";
import { logical, physical, shortened } from "../plan.js";
import { recalled, remember } from "../theme.js";

const MARGIN = 20;
const BAND_HEAD = 30;
const FORM = "headrace.graph";

export class Graph {
  constructor(app, of) {
    Object.assign(this, { app, of, plan: null, planVersion: null, every: Infinity, form: recalled(FORM, "logical"), chosen: null, scale: 1, fits: true, drawn: null });
  }

  async load(signal) {
    const { version } = this.of.job;
    this.plan = await get(jobPath(this.of.name, "plan"), { signal });
    Object.assign(this, { planVersion: version, drawn: null });
  }

  /** The plan is of a version: it is fetched again when another one runs. */
  noticed(job) {
    if (this.plan && job.version !== this.planVersion) this.of.tabPoll.now();
  }

  choose(form) {
    Object.assign(this, { form, drawn: null });
    remember(FORM, form);
    this.app.draw();
  }

  view() {
    if (!this.plan) return this.of.tabError ? null : loading("the plan");
    return [this.bar(), this.form === "table" ? this.steps() : this.picture(), this.chosen ? this.side() : null];
  }

  bar() {
    const forms = [["logical", "Logical plan"], ["physical", "Physical plan"], ["table", "Table"]];
    const { bottleneck } = this.of.figures ?? {};
    return h("div", { class: "bar", key: "bar" },
      h("div", { class: "segments", role: "group", "aria-label": "Form of the plan" }, forms.map(([id, title]) =>
        h("button", { type: "button", "aria-pressed": String(this.form === id), onclick: () => this.choose(id) }, title))),
      bottleneck ? h("p", { class: "bottleneck-note" }, h("strong", {}, "Bottleneck: ",
        h("button", { type: "button", class: "link", onclick: () => this.find(bottleneck.step) }, bottleneck.step)), ": ", bottleneck.why, ".") : h("span", { class: "gap" }),
      this.form === "table" ? null : h("div", { class: "segments", role: "group", "aria-label": "Size" },
        h("button", { type: "button", "aria-pressed": String(this.fits), onclick: () => this.zoom(null) }, "Fit"),
        h("button", { type: "button", "aria-label": "Smaller", onclick: () => this.zoom(0.8) }, "−"),
        h("button", { type: "button", "aria-label": "Larger", onclick: () => this.zoom(1.25) }, "+")));
  }

  zoom(by) {
    if (by === null) this.fits = true;
    else [this.scale, this.fits] = [Math.max(0.3, Math.min(2.5, this.current * by)), false];
    this.app.draw();
  }

  get current() {
    if (!this.fits) return this.scale;
    const room = (document.querySelector(".graph")?.clientWidth ?? 1200) - 2;
    return Math.max(0.7, Math.min(1, room / (this.drawn?.width ?? room))); // below that, one scrolls
  }

  /** A long plan is wider than the screen. */
  find(name) {
    this.select(name);
    this.app.draw(() => document.querySelector(`[data-step="${CSS.escape(name)}"]`)?.scrollIntoView({ block: "nearest", inline: "center" }));
  }

  select(name) {
    this.chosen = this.chosen === name ? null : name;
    this.app.draw();
  }

  // --- figures of steps -----------------------------------------------------------------------

  figuresOf(name) {
    const f = this.of.figures;
    if (!f) return null;
    const of = (parts) => parts.find((part) => part.name === name);
    const [step, input, output] = [of(f.steps), of(f.inputs), of(f.outputs)];
    if (input) return { ...input, rate_out: input.rate, ...step, lag_rows: input.lag_rows, watermark: input.watermark };
    if (output) return { ...step, ...output, rate_in: output.rate };
    return step ?? null;
  }

  rateOf(edge) {
    const from = this.figuresOf(edge.fromName);
    const to = this.figuresOf(edge.toName);
    if (edge.port === "late") return from?.late ? { text: `${short(from.late)} late`, value: 0 } : null;
    const value = from?.rate_out ?? (edge.isOnly ? to?.rate_in : null) ?? null;
    return value === null ? null : { text: rate(value), value };
  }

  // --- the picture ----------------------------------------------------------------------------

  layOut() {
    const made = this.form === "physical" ? physical(this.plan) : logical(this.plan);
    const names = new Map(made.nodes.map((node) => [node.id, node.step.name]));
    for (const edge of made.edges) {
      const isOnly = made.edges.filter((e) => e.to === edge.to).length === 1;
      Object.assign(edge, { isOnly, fromName: names.get(edge.from), toName: names.get(edge.to) });
    }
    const size = layOut(made.nodes, made.edges);
    const head = made.bands.length ? BAND_HEAD : 0;
    const back = made.edges.some((e) => e.back) ? 44 : 0;
    this.drawn = { ...made, head, width: size.width + 2 * MARGIN, height: size.height + 2 * MARGIN + head + back, below: size.height };
  }

  picture() {
    if (!this.drawn) this.layOut();
    const { drawn } = this;
    const scale = this.current;
    return h("div", { class: "graph panel", key: "graph", role: "region", tabindex: "0", "aria-label": `${this.form} plan, drawn; the table holds the same`, after: () => this.measured() },
      h("svg", {
        width: Math.round(drawn.width * scale), height: Math.round(drawn.height * scale),
        viewBox: `0 0 ${drawn.width} ${drawn.height}`, role: "group", "aria-label": `Plan of ${this.plan.job}`,
      },
        h("defs", {}, h("marker", { id: "tip", viewBox: "0 0 8 8", refX: "7", refY: "4", markerWidth: "10", markerHeight: "10", markerUnits: "userSpaceOnUse", orient: "auto-start-reverse" }, h("path", { d: "M0,0.5 L7.5,4 L0,7.5 z", class: "tip" }))),
        h("g", { transform: `translate(${MARGIN},${MARGIN})` }, this.bands()),
        h("g", { transform: `translate(${MARGIN},${MARGIN + drawn.head})` },
          drawn.edges.map((edge, i) => this.edge(edge, i)), drawn.nodes.map((node) => this.node(node)))));
  }

  /** Once the width of the page is known the picture may have to be fitted again. */
  measured() {
    const scale = this.current;
    if (this.fits && this.scale !== scale) {
      this.scale = scale;
      this.app.draw();
    }
  }

  bands() {
    const { drawn } = this;
    const bands = drawn.bands.map((band) => {
      const those = drawn.nodes.filter((n) => n.level === band.level);
      return { band, left: Math.min(...those.map((n) => n.x)), right: Math.max(...those.map((n) => n.x + n.width)) };
    }).filter(({ left }) => Number.isFinite(left));
    return bands.map(({ band, left, right }, i) => {
      const from = i ? (bands[i - 1].right + left) / 2 + 3 : left - 12;
      const to = i < bands.length - 1 ? (right + bands[i + 1].left) / 2 - 3 : right + 12;
      return h("g", { key: `band ${band.level}` },
        h("rect", { class: "band", x: from, y: -8, width: to - from, height: drawn.below + drawn.head + 20, rx: 8 }),
        h("text", { class: "band-name", x: from + 12, y: 12 }, `Level ${band.level} · ${band.task === "source" ? "source tasks" : "tasks by slot"}`));
    });
  }

  edge(edge, i) {
    const flow = this.rateOf(edge);
    const { way, x, y } = edge.back ? this.wayBack(edge) : wayOf(edge);
    const anchor = edge.back ? "middle" : "end";
    const words = [flow?.text, edge.port && edge.port !== "late" ? `.${edge.port}` : ""].filter(Boolean).join(" ");
    const below = [this.delayOf(edge), shortened(edge.how, 18)].filter(Boolean);
    return h("g", { key: `edge ${i}`, class: "edge" },
      h("path", { d: way, class: `line${edge.back ? " back" : ""}`, "marker-end": "url(#tip)", vars: { "--flow": (1.2 + Math.min(2.4, 0.55 * Math.log10(1 + (flow?.value ?? 0)))).toFixed(2) } }),
      h("text", { x, y: y - 6, "text-anchor": anchor, class: "flow" }, words),
      below.map((text, n) => h("text", { x, y: y + 14 + 13 * n, "text-anchor": anchor, class: "how" }, text)));
  }

  wayBack(edge) {
    const [from, to] = [edge.from, edge.to].map((id) => this.drawn.nodes.find((n) => n.id === id));
    const [x1, x2, y] = [from.x + from.width / 2, to.x + to.width / 2, this.drawn.below + 34];
    return { way: `M${x1},${from.y + from.height} C${x1},${y} ${x2},${y} ${x2},${to.y + to.height}`, x: (x1 + x2) / 2, y: y - 8 };
  }

  delayOf(edge) {
    const watermark = this.figuresOf(edge.fromName)?.watermark;
    const { time } = this.of.figures ?? {};
    return watermark === null || watermark === undefined || !time ? "" : `wm −${duration(Math.max(0, time - watermark))}`;
  }

  node(node) {
    const name = node.step.name;
    const f = this.figuresOf(name);
    const bottleneck = this.of.figures?.bottleneck?.step;
    const isNeck = bottleneck === name || (node.step.fused ?? []).includes(bottleneck);
    const busy = f?.busy ?? null;
    const classes = ["node", `kind-${node.kind === "read" ? "read" : node.kind === "write" ? "write" : "step"}`, isNeck ? "bottleneck" : "", this.chosen === name ? "chosen" : ""];
    const press = (event) => {
      if (event.key !== "Enter" && event.key !== " ") return;
      event.preventDefault();
      this.select(name);
    };
    const words = `${name}, ${node.step.kind}${busy === null ? "" : `, ${percent(busy)} busy`}${flow(f).in == null ? "" : `, ${rate(flow(f).in)} in`}${isNeck ? ", the bottleneck" : ""}`;
    return h("g", {
      key: `node ${node.id}`, class: classes.join(" "), transform: `translate(${node.x},${node.y})`, tabindex: "0", role: "button",
      "aria-pressed": String(this.chosen === name), "aria-label": words, "data-row": true, "data-step": name,
      onclick: () => this.select(name), onkeydown: press,
    },
      h("title", {}, `${name}: ${node.step.detail ?? ""}`),
      h("rect", { class: "box", width: node.width, height: node.height, rx: 7 }),
      node.lines.map((line, i) => h("text", { x: 12, y: 24 + 17 * i, class: i === 0 ? "name" : "more" }, line)),
      busy === null ? h("text", { class: "busy-text", x: 12, y: node.height - 10 }, f?.lag_rows === undefined || f.lag_rows === null ? "" : `${short(f.lag_rows)} rows wait`) : [
        h("rect", { class: "busy-track", x: 12, y: node.height - 15, width: node.width - 64, height: 5, rx: 2.5 }),
        h("rect", { class: `busy${busy > 0.85 ? " full" : ""}`, x: 12, y: node.height - 15, width: Math.max(1, (node.width - 64) * Math.min(1, busy)), height: 5, rx: 2.5 }),
        h("text", { class: "busy-text", x: node.width - 10, y: node.height - 9, "text-anchor": "end" }, percent(busy)),
      ],
      isNeck ? h("text", { class: "neck", x: 0, y: -7 }, "▼ bottleneck") : null);
  }

  // --- one step, and the table ----------------------------------------------------------------

  side() {
    const name = this.chosen;
    const step = this.plan.logical.find((s) => s.name === name) ?? this.plan.physical.flatMap((l) => l.steps).find((s) => s.name === name) ?? this.plan.outputs.find((o) => o.name === name) ?? { name };
    const f = this.figuresOf(name);
    const { user = {} } = f ?? {};
    const metrics = [
      ...Object.entries(user.counters ?? {}).map(([n, v]) => [n, count(v)]),
      ...Object.entries(user.gauges ?? {}).map(([n, v]) => [n, short(v)]),
      ...Object.entries(user.histograms ?? {}).map(([n, v]) => [n, `p50 ${short(v.p50)} · p95 ${short(v.p95)} · p99 ${short(v.p99)} of ${count(v.count)}`]),
    ];
    return h("aside", { class: "side panel", key: "side", "aria-label": `Step ${name}` },
      h("div", { class: "title-row" }, h("h2", {}, name), h("span", { class: "gap" }), button("Close", () => this.select(name))),
      facts([
        ["kind", step.kind], ["does", step.detail ?? step.uri], ["line", step.site && h("code", {}, step.site)],
        ["fused", (step.fused ?? []).join(", ")], ["runs as Python", step.python], ["columns", step.schema ?? (step.columns ?? []).join(", ")], ["guarantee", step.guarantee],
      ]),
      f ? [h("h3", {}, "Now"), facts([
        ...["in", "out"].map((way) => [way, flow(f)[way] == null ? null : rate(flow(f)[way])]),
        ["busy", f.busy === undefined || f.busy === null ? null : meter(f.busy)], ["for 1,000 rows", f.execute_ms == null ? null : duration(f.execute_ms)],
        ["in an epoch", f.process_ms == null ? null : duration(f.process_ms)], ["state", f.state_rows == null ? null : `${count(f.state_rows)} rows, ${bytes(f.state_bytes)}`],
        ["watermark", f.watermark == null ? null : h("span", { title: exact(f.watermark) }, seconds((this.of.figures.time - f.watermark) / 1000), " behind")],
        ["late", f.late ? count(f.late) : null], ["dead", f.dead ? count(f.dead) : null], ["rows so far", f.in === undefined ? null : `${count(f.in)} in, ${count(f.out)} out`],
      ])] : h("p", { class: "note" }, "No figures of this step."),
      metrics.length ? [h("h3", {}, "Its own metrics"), facts(metrics)] : null);
  }

  steps() {
    const columns = [
      { id: "name", title: "Step", cell: (s) => h("button", { type: "button", class: "link", "data-row": true, onclick: () => this.select(s.name) }, s.name) },
      { id: "kind", title: "Kind", cell: (s) => s.kind },
      { id: "reads", title: "Reads", cell: (s) => s.inputs.join(", ") || "–" },
      ...[["in", "In"], ["out", "Out"]].map(([id, title]) => ({ id, title, number: true, cell: (s) => rate(flow(this.figuresOf(s.name))[id]) })),
      { id: "busy", title: "Busy", number: true, cell: (s) => percent(this.figuresOf(s.name)?.busy) },
      { id: "state", title: "State rows", number: true, cell: (s) => count(this.figuresOf(s.name)?.state_rows) },
      { id: "does", title: "Does", cell: (s) => s.detail },
    ];
    return table({ caption: "Steps of the plan", rows: this.plan.logical, key: (s) => s.name, columns });
  }
}

/** The line of an edge through its lanes, and where its words end: just before the arrow. */
function wayOf(edge) {
  const [first] = edge.chain;
  let [x, y] = [first.x + first.width, first.y + first.height / 2];
  let way = `M${x},${y}`;
  for (const next of edge.chain.slice(1)) {
    const to = next.isLane ? next.y + next.height / 2 : edge.arrives;
    const half = (x + next.x) / 2;
    way += ` C${half},${y} ${half},${to} ${next.x},${to}`;
    if (next.isLane) way += ` H${next.x + next.width}`;
    [x, y] = [next.x + next.width, to];
  }
  return { way, x: edge.chain.at(-1).x - 11, y };
}

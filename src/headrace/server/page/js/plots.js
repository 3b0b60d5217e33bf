// Plots over time. uPlot draws them; this file gives them the page's colours, one cursor for all, a
// summary in words for screen readers, and their values as a table.

import uPlot from "../vendor/uPlot.esm.js";
import { h } from "./dom.js";
import { exact, time } from "./format.js";
import { colour, onTheme } from "./theme.js";

const HEIGHT = 168;
const DASHES = [[], [6, 4], [2, 3], [10, 3, 2, 3], [1, 4]]; // so that lines differ without their colours
const MOST = 5; // lines of a plot
const SHOWN = 24; // rows of the table of values
const sync = uPlot.sync("plots");
let made = 0;

/** One plot; `format` makes a text of a value. Lines are {name, label}. */
export class Plot {
  constructor({ id, title, format, lines, draw }) {
    made += 1;
    Object.assign(this, { key: `plot ${made}`, id, title, format, lines: lines.slice(0, MOST), draw, data: [[]], range: null, chart: null, at: null, opened: false, host: null });
    this.forget = onTheme(() => this.rebuild());
    this.resizing = new ResizeObserver(() => this.resize());
  }

  stop() {
    this.forget();
    this.resizing.disconnect();
    this.chart?.destroy();
    this.chart = null;
    this.host = null;
  }

  set(times, series, range) {
    this.data = [times, ...this.lines.map(({ name }) => series[name] ?? times.map(() => null))];
    this.range = range;
    if (!this.host) return;
    if (!this.chart) this.build();
    else this.chart.setData(this.data.map((values, i) => (i ? values : values.map((at) => at / 1000))), true);
  }

  get isEmpty() {
    return !this.data.slice(1).some((values) => values.some((v) => v !== null));
  }

  rebuild() {
    this.chart?.destroy();
    this.chart = null;
    this.build();
  }

  build() {
    if (!this.range || !this.host?.clientWidth) return;
    const [ink, grid] = [colour("ink-2"), colour("grid")];
    const font = "12px system-ui, sans-serif";
    const axis = { stroke: ink, font, grid: { stroke: grid, width: 1 }, ticks: { show: false } };
    const options = {
      width: this.host.clientWidth, height: HEIGHT, legend: { show: false },
      padding: [8, 8, 0, 0],
      cursor: { sync: { key: sync.key, setSeries: false }, drag: { x: false, y: false }, points: { size: 6 }, y: false },
      scales: {
        x: { time: true, range: () => this.range.map((at) => at / 1000) },
        y: { range: (_, low, high) => [Math.min(0, low ?? 0), (high ?? 0) > 0 ? high * 1.08 : 1] },
      },
      axes: [
        { ...axis, size: 26, space: 70, values: [
          [86400, "{D} {MMM}", null, null, null, null, null, null, 1],
          [3600, "{HH}:{mm}", "\n{D} {MMM}", null, "\n{D} {MMM}", null, null, null, 1],
          [60, "{HH}:{mm}", null, null, null, null, null, null, 1],
          [1, "{HH}:{mm}:{ss}", null, null, null, null, null, null, 1],
        ] },
        { ...axis, size: 72, space: 34, values: (_, all) => this.ticks(all) },
      ],
      series: [{}, ...this.lines.map(({ label }, i) => ({
        label, stroke: colour(`line-${i + 1}`), width: 1.75, dash: DASHES[i], points: { show: false }, spanGaps: false,
        fill: this.lines.length === 1 ? colour("line-fill") : undefined,
      }))],
      hooks: { setCursor: [(chart) => this.moved(chart.cursor.idx ?? null)] },
    };
    this.chart = new uPlot(options, this.data.map((values, i) => (i ? values : values.map((at) => at / 1000))), this.host);
  }

  /** Of two ticks that would read the same only the first is named; without values there are none. */
  ticks(all) {
    const texts = all.map((v) => (v === null || this.isEmpty ? "" : this.format(v)));
    return texts.map((text, i) => (i && text === texts[i - 1] ? "" : text));
  }

  moved(index) {
    if (this.at === index) return;
    this.at = index;
    this.draw();
  }

  resize() {
    if (!this.host?.clientWidth) return;
    if (!this.chart) this.build();
    else if (this.chart.width !== this.host.clientWidth) this.chart.setSize({ width: this.host.clientWidth, height: HEIGHT });
  }

  /** The value under the cursor, else the newest one. */
  value(i) {
    const values = this.data[i + 1] ?? [];
    return this.at !== null && this.at < values.length ? values[this.at] : values.findLast((v) => v !== null);
  }

  summary() {
    const parts = this.lines.map(({ label }, i) => {
      const known = (this.data[i + 1] ?? []).filter((v) => v !== null);
      if (!known.length) return `${label}: no values`;
      const [low, high] = [Math.min(...known), Math.max(...known)];
      return `${label}: now ${this.format(known.at(-1))}, from ${this.format(low)} to ${this.format(high)}`;
    });
    return `${this.title}. ${parts.join("; ")}.`;
  }

  view() {
    const times = this.data[0];
    const at = this.at !== null && this.at < times.length ? times[this.at] : null;
    return h("figure", { class: "plot panel", key: this.key, "data-plot": this.id },
      h("figcaption", {},
        h("h3", {}, this.title),
        h("span", { class: "at note" }, at ? time(at) : ""),
        h("span", { class: "keys" }, this.lines.map(({ label }, i) =>
          h("span", { class: `key line-${i + 1}` }, h("svg", { class: "swatch", viewBox: "0 0 18 4", "aria-hidden": "true" },
            h("path", { d: "M0 2H18", "stroke-dasharray": DASHES[i].join(" ") || null })), `${label} `,
            h("span", { class: "value" }, this.format(this.value(i))))))),
      h("div", { class: "canvas", role: "img", "aria-label": this.summary(), host: (node) => this.placed(node) }),
      this.isEmpty ? h("p", { class: "none note" }, "No values in this time.") : null,
      h("details", { open: this.opened, ontoggle: (event) => this.toggled(event.target.open) },
        h("summary", {}, "Values as a table"), this.opened ? this.table() : null));
  }

  toggled(open) {
    if (this.opened === open) return;
    this.opened = open;
    this.draw();
  }

  placed(node) {
    this.host = node;
    this.resizing.observe(node);
    this.build();
  }

  table() {
    const [times] = this.data;
    const step = Math.max(1, Math.ceil(times.length / SHOWN));
    const rows = times.map((_, i) => i).filter((i) => (times.length - 1 - i) % step === 0).reverse();
    return h("div", { class: "scroll", role: "region", tabindex: "0", "aria-label": `Values of ${this.title}` },
      h("table", {}, h("caption", { class: "hidden-but-read" }, this.title),
        h("thead", {}, h("tr", {}, h("th", { scope: "col" }, "Time"), this.lines.map(({ label }) => h("th", { scope: "col", class: "number" }, label)))),
        h("tbody", {}, rows.map((i) => h("tr", {}, h("th", { scope: "row", title: exact(times[i]) }, time(times[i])),
          this.lines.map((_, n) => h("td", { class: "number" }, this.format(this.data[n + 1][i]))))))));
  }
}

// Windows in flight: how many are open in each step, and when the next one closes.

import { h } from "../dom.js";
import { count, duration, exact, time } from "../format.js";
import { empty, panel, table } from "../parts.js";
import { NO_FIGURES } from "./overview.js";

export class Windows {
  constructor(app, of) {
    Object.assign(this, { app, of });
  }

  view() {
    const f = this.of.figures;
    if (!f) return empty(NO_FIGURES);
    if (!f.windows.length) return empty("No step of this job has windows.");
    const watermark = (w) => f.steps.find((s) => s.name === w.step)?.watermark ?? f.watermark;
    const left = (w) => (w.next === null || w.next === undefined || watermark(w) === null ? null : w.next - watermark(w));
    return panel("Windows in flight", table({
      caption: "Windows in flight", rows: f.windows, key: (w) => w.step, columns: [
        { id: "step", title: "Step", cell: (w) => w.step },
        { id: "open", title: "Rows of state, at most", number: true, cell: (w) => count(w.open) },
        { id: "watermark", title: "Watermark", number: true, cell: (w) => h("span", { title: exact(watermark(w)) }, time(watermark(w))) },
        { id: "next", title: "The next is due at", number: true, cell: (w) => h("span", { title: exact(w.next) }, time(w.next)) },
        { id: "left", title: "Event time until then", number: true, cell: (w) => (left(w) === null ? "–" : duration(Math.max(0, left(w)))) },
      ],
    }), h("p", { class: "note" }, "A window closes, and its result is emitted, when the watermark reaches its end. Rows that come after that are late. Of aggregates each key and window has a row, and one more for each batch that changed it lately."));
  }
}

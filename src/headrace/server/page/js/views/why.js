// Why there is no output, or less than one thinks: in words, as `headrace why` says it.

import { get, path } from "../api.js";
import { h } from "../dom.js";
import { time } from "../format.js";
import { button, empty, loading } from "../parts.js";

export class Why {
  constructor(app, of) {
    Object.assign(this, { app, of, reasons: null, loaded: 0, asking: false, every: Infinity });
  }

  async load(signal) {
    try {
      const { reasons } = await get(path(["jobs", this.of.name, "why"]), { signal });
      Object.assign(this, { reasons, loaded: Date.now() });
    } finally {
      this.asking = false;
    }
  }

  again() {
    this.asking = true;
    this.of.tabPoll.now();
    this.app.draw();
  }

  view() {
    if (!this.reasons) return this.of.tabError ? null : loading("the answer");
    return [
      h("div", { class: "bar", key: "bar" }, h("h2", {}, "Why is there no output, or not the one I expect?"), h("span", { class: "gap" }),
        h("span", { class: "note" }, `Asked at ${time(this.loaded)}`),
        button(this.asking ? "Asking …" : "Ask again", () => this.again(), { disabled: this.asking })),
      this.reasons.length
        ? h("ol", { class: "reasons", key: "reasons" }, this.reasons.map((reason) => h("li", { class: "panel" },
            reason.where ? h("div", {}, h("span", { class: "tag" }, reason.where)) : null, h("p", { class: "fact" }, reason.text), reason.hint ? h("p", { class: "hint" }, reason.hint) : null)))
        : empty("Nothing holds output back: rows come in, and results go out."),
    ];
  }
}

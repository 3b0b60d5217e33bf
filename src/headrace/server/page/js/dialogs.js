// One dialog at a time: a question with its consequence, and what was refused when it was tried.

import { h } from "./dom.js";
import { problem } from "./parts.js";

let number = 0;

export class Dialogs {
  constructor(draw) {
    Object.assign(this, { draw, open: null });
  }

  /** `body()` gives what stands in it; `act()` is awaited, and its refusal shown in the dialog. */
  show({ title, body, label, danger = false, act, wide = false, ready = () => true }) {
    this.open = {
      title, body, label, danger, act, wide, ready,
      key: `dialog ${(number += 1)}`, busy: false, error: null, before: document.activeElement,
    };
    this.draw();
  }

  close() {
    const { before } = this.open ?? {};
    this.open = null;
    this.draw(() => before?.isConnected && before.focus());
  }

  async run() {
    const one = this.open;
    if (!one || one.busy || !one.ready()) return;
    Object.assign(one, { busy: true, error: null });
    this.draw();
    try {
      await one.act();
    } catch (error) {
      if (this.open === one) Object.assign(one, { error, busy: false });
      this.draw();
      return;
    }
    if (this.open === one) this.close();
  }

  view() {
    const one = this.open;
    if (!one) return null;
    const cancelled = (event) => {
      event.preventDefault();
      this.close();
    };
    const submitted = (event) => {
      event.preventDefault();
      this.run();
    };
    return h("dialog", {
      key: one.key, class: one.wide ? "wide" : "", "aria-labelledby": "dialog-title",
      after: (node) => node.open || node.showModal(), oncancel: cancelled,
      onclick: (event) => event.target.tagName === "DIALOG" && this.close(),
    },
      h("form", { onsubmit: submitted },
        h("h2", { id: "dialog-title" }, one.title),
        h("div", { class: "dialog-body" }, one.body()),
        problem(one.error),
        h("div", { class: "dialog-buttons" },
          h("button", { type: "button", autofocus: one.danger || !one.act, onclick: () => this.close() }, one.act ? "Cancel" : "Close"),
          one.act
            ? h("button", { type: "submit", class: one.danger ? "danger" : "main", disabled: one.busy || !one.ready() }, one.busy ? "Working …" : one.label)
            : null)));
  }
}

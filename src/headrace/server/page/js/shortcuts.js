// Single keys, as the list under `?` says. Not while something is typed, and not when switched off.

import { h } from "./dom.js";
import { recalled, remember } from "./theme.js";

const NAME = "headrace.shortcuts";
export const SHORTCUTS = [
  ["?", "this list"],
  ["g j", "all jobs"],
  ["g e", "events of all jobs"],
  ["/", "to the filter"],
  ["j  k", "next, previous row"],
  ["Enter", "open the row"],
  ["[  ]", "previous, next tab of a job"],
  ["a", "actions of a job"],
  ["r", "ask the server at once"],
  ["t", "light, dark, as the system"],
  ["Esc", "close what is open"],
];

export class Shortcuts {
  constructor(actions) {
    Object.assign(this, { actions, before: "", on: recalled(NAME, "on") === "on" });
    document.addEventListener("keydown", (event) => this.pressed(event));
  }

  switchTo(on) {
    this.on = on;
    remember(NAME, on ? "on" : "off");
  }

  pressed(event) {
    if (!this.on || event.ctrlKey || event.metaKey || event.altKey || event.defaultPrevented) return;
    if (isTyping(event.target) || document.querySelector("dialog[open]")) return;
    const { before } = this;
    this.before = event.key === "g" ? "g" : "";
    const action = this.actions[before ? `${before} ${event.key}` : event.key];
    if (!action) return;
    event.preventDefault();
    action();
  }
}

const isTyping = (node) => node instanceof HTMLElement && (node.isContentEditable || /^(INPUT|TEXTAREA|SELECT)$/.test(node.tagName));

export function shortcutList(shortcuts, draw) {
  return [
    h("dl", { class: "shortcuts" }, SHORTCUTS.map(([keys, what]) =>
      h("div", {}, h("dt", {}, keys.split("  ").map((key, i) => [i ? " " : "", h("kbd", {}, key)])), h("dd", {}, what)))),
    h("label", { class: "check" },
      h("input", {
        type: "checkbox", checked: shortcuts.on,
        onchange: (event) => {
          shortcuts.switchTo(event.target.checked);
          draw();
        },
      }), "Single keys do this (switch off if they get in your way)"),
  ];
}

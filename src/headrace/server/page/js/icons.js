// Icons of 16 × 16, drawn with the colour of the text beside them. They never stand for a word alone.

import { h } from "./dom.js";

const PATHS = {
  running: ["M8 3a5 5 0 1 1 0 10A5 5 0 0 1 8 3z", true],
  starting: ["M8 2.5a5.5 5.5 0 1 0 5.5 5.5M8 2.5V8"],
  stopping: ["M8 2.5a5.5 5.5 0 1 1-5.5 5.5M8 13.5V8"],
  draining: ["M4 2.5h8L8.8 8v5l-1.6-1.5V8z"],
  waiting: ["M13 8a5 5 0 1 1-1.5-3.6M13 2v3h-3"],
  ended: ["M3 8.5l3.5 3.5L13 4.5"],
  failed: ["M4 4l8 8M12 4l-8 8"],
  killed: ["M4 4h8v8H4z", true],
  inactive: ["M8 3a5 5 0 1 1 0 10A5 5 0 0 1 8 3z"],
  warning: ["M8 2.2L14.5 13.5h-13zM8 6.5v3.2M8 11.6v.2"],
  play: ["M5 3.2l8 4.8-8 4.8z", true],
  pause: ["M5 3.5v9M11 3.5v9"],
  restart: ["M13 8a5 5 0 1 1-1.5-3.6M13 2v3h-3"],
  more: ["M3.5 8h.01M8 8h.01M12.5 8h.01"],
  up: ["M4 10l4-4 4 4"],
  down: ["M4 6l4 4 4-4"],
  right: ["M6 4l4 4-4 4"],
  light: ["M8 5.3a2.7 2.7 0 1 1 0 5.4 2.7 2.7 0 0 1 0-5.4zM8 1.5v1.5M8 13v1.5M1.5 8H3M13 8h1.5M3.4 3.4l1 1M11.6 11.6l1 1M12.6 3.4l-1 1M4.4 11.6l-1 1"],
  dark: ["M13 9.5A5.5 5.5 0 0 1 6.5 3 5.5 5.5 0 1 0 13 9.5z"],
  system: ["M2 3.5h12v7.5H2zM6 13.5h4"],
  help: ["M6 6a2 2 0 1 1 2.8 1.9c-.6.3-.8.7-.8 1.6M8 12v.2"],
  out: ["M6 2.5H3v11h3M10 5l3 3-3 3M13 8H6"],
  plus: ["M8 3v10M3 8h10"],
};

export function icon(name) {
  const [path, isFilled] = PATHS[name] ?? PATHS.inactive;
  return h("svg", { class: `icon${isFilled ? " filled" : ""}`, viewBox: "0 0 16 16", "aria-hidden": "true", focusable: "false" },
    h("path", { d: path }));
}

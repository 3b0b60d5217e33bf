// What a run of the job has printed: followed as it grows, filtered by a text.

import { get, path } from "../api.js";
import { h } from "../dom.js";
import { count, plural } from "../format.js";
import { empty, loading } from "../parts.js";

const MOST = 5000; // lines that are held
const PIECE = 1000; // asked for at once
const BAD = /\b(ERROR|FATAL|CRITICAL|Traceback|Exception|HR-[A-Z]+-\d{3})\b/;
const WARN = /\b(WARN|WARNING)\b/;

export class Logs {
  constructor(app, of) {
    Object.assign(this, { app, of, run: null, runs: [], lines: null, next: null, dropped: 0, filter: "", follows: true, host: null });
  }

  async load(signal) {
    const { run, next } = this;
    const found = await get(path(["jobs", this.of.name, "logs"], { run, after: next, limit: PIECE }), { signal });
    if (run !== this.run || next !== this.next) return; // another one was chosen meanwhile
    const isNewRun = run === null && this.current !== undefined && found.run !== this.current;
    this.runs = found.runs ?? [];
    this.current = found.run;
    if (isNewRun && this.next !== null) { // the newest run is another one now: from its beginning
      Object.assign(this, { lines: null, next: null, dropped: 0 });
      this.clear();
      await this.load(signal);
      return;
    }
    this.next = found.next;
    this.take(found.lines);
  }

  take(lines) {
    this.lines ??= [];
    this.lines.push(...lines);
    const over = this.lines.length - MOST;
    if (over > 0) {
      this.lines.splice(0, over);
      this.dropped += over;
    }
    if (this.host) this.append(lines);
    this.app.draw();
  }

  choose(run) {
    Object.assign(this, { run, lines: null, next: null, dropped: 0 });
    this.clear();
    this.of.tabPoll.now();
  }

  clear() {
    this.host?.replaceChildren();
  }

  fits(line) {
    return !this.filter || line.toLowerCase().includes(this.filter.toLowerCase());
  }

  /** Lines are added to the document, never drawn again: a log may be long. */
  append(lines) {
    const some = document.createDocumentFragment();
    for (const line of lines) {
      if (!this.fits(line)) continue;
      const at = document.createElement("div");
      at.className = BAD.test(line) ? "bad" : WARN.test(line) ? "warn" : "";
      at.textContent = line || " ";
      some.append(at);
    }
    this.host.append(some);
    while (this.host.childElementCount > MOST) this.host.firstChild.remove();
    if (this.follows) this.host.scrollTop = this.host.scrollHeight;
  }

  placed(node) {
    this.host = node;
    node.addEventListener("scroll", () => {
      const follows = node.scrollHeight - node.scrollTop - node.clientHeight < 24;
      if (follows === this.follows) return;
      this.follows = follows;
      this.app.draw();
    });
    if (this.lines) this.append(this.lines);
  }

  filterBy(text) {
    this.filter = text;
    this.clear();
    this.append(this.lines);
    this.app.draw();
  }

  follow(on) {
    this.follows = on;
    if (on && this.host) this.host.scrollTop = this.host.scrollHeight;
    this.app.draw();
  }

  view() {
    if (this.lines === null) return this.of.tabError ? null : loading("the log");
    if (!this.runs.length && !this.lines.length) return empty("This job has not run yet.");
    const shown = this.filter ? this.lines.filter((line) => this.fits(line)).length : this.lines.length;
    return [
      h("div", { class: "bar", key: "bar" },
        h("label", { class: "inline" }, "Run ", h("select", { value: String(this.run ?? ""), onchange: (event) => this.choose(event.target.value === "" ? null : Number(event.target.value)) },
          h("option", { value: "" }, `newest${this.current === undefined || this.current === null ? "" : ` (${this.current})`}`),
          [...this.runs].sort((a, b) => b - a).map((run) => h("option", { value: String(run), key: run }, String(run))))),
        h("input", {
          type: "search", class: "filter", "data-filter": true, placeholder: "Filter lines", "aria-label": "Filter lines", value: this.filter,
          oninput: (event) => this.filterBy(event.target.value),
        }),
        h("label", { class: "check" }, h("input", { type: "checkbox", checked: this.follows, onchange: (event) => this.follow(event.target.checked) }), "Follow"),
        h("span", { class: "note", role: "status" }, this.filter ? `${count(shown)} of ${plural(this.lines.length, "line")}` : plural(this.lines.length, "line"),
          this.dropped ? `, ${count(this.dropped)} earlier ones are in the file` : "")),
      h("div", { class: "log", key: "log", role: "log", "aria-live": "off", tabindex: "0", "aria-label": "Log", host: (node) => this.placed(node) }),
    ];
  }
}

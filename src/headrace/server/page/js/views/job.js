// One job: its state and what may be done with it above, and one of the tabs below.

import { get, jobPath } from "../api.js";
import { h } from "../dom.js";
import { count, duration, time } from "../format.js";
import { icon } from "../icons.js";
import { Actions } from "../actions.js";
import { facts, loading, pill, problem, when } from "../parts.js";
import { Poll } from "../poll.js";
import { Backpressure } from "./backpressure.js";
import { Dead } from "./dead.js";
import { Events } from "./events.js";
import { Graph } from "./graph.js";
import { Logs } from "./logs.js";
import { Overview } from "./overview.js";
import { Savepoints } from "./savepoints.js";
import { State } from "./state.js";
import { Versions } from "./versions.js";
import { Why } from "./why.js";
import { Windows } from "./windows.js";

const EVERY = 1000;
const TABS = [
  ["overview", "Overview", Overview], ["graph", "Graph", Graph], ["windows", "Windows", Windows],
  ["backpressure", "Backpressure", Backpressure], ["state", "State", State], ["dead", "Dead letters", Dead],
  ["events", "Events", Events], ["logs", "Logs", Logs], ["why", "Why", Why],
  ["versions", "Versions", Versions], ["savepoints", "Savepoints", Savepoints],
];

export class JobView {
  constructor(app, name, tab) {
    Object.assign(this, { app, name, crumbs: ["jobs", name], job: null, error: null, tab: null, tabId: null });
    this.actions = new Actions(app, this);
    this.poll = new Poll((signal) => this.load(signal), () => EVERY, app.connection, (error) => app.refused(error, this));
    this.known = new Promise((known) => (this.isKnown = known)); // the job was loaded once
    this.wanted = tab;
  }

  get title() {
    return this.job ? `${this.name} · ${this.job.state}` : this.name;
  }

  get figures() {
    return this.job?.figures ?? null;
  }

  start() {
    this.show(this.wanted);
    this.poll.start();
  }

  stop() {
    this.leaveTab();
    this.poll.stop();
    this.actions.stop();
  }

  refresh() {
    this.tabPoll?.now();
    this.poll.now();
  }

  leaveTab() {
    this.tabPoll?.stop();
    this.tab?.stop?.();
  }

  show(tab) {
    const [id, , Tab] = TABS.find(([name]) => name === tab) ?? TABS[0];
    if (id === this.tabId) return;
    this.leaveTab();
    const chosen = new Tab(this.app, this);
    Object.assign(this, { tabId: id, tab: chosen, tabError: null, tabPoll: null });
    if (chosen.load) {
      // what a tab is refused is said in the tab, and the rest of the page goes on
      this.tabPoll = new Poll((signal) => this.loadTab(signal), () => chosen.every ?? EVERY, this.app.connection, (error) => this.tabRefused(error));
      this.tabPoll.start();
    }
    const takesFocus = document.activeElement?.getAttribute("role") === "tab";
    this.app.draw(() => this.seeTab(takesFocus));
  }

  /** On a narrow screen the tabs are scrolled. */
  seeTab(takesFocus = false) {
    const shown = document.querySelector(".tabs [aria-selected=true]");
    shown?.scrollIntoView({ block: "nearest", inline: "nearest" });
    if (takesFocus) shown?.focus();
  }

  moveTab(by) {
    const at = TABS.findIndex(([id]) => id === this.tabId);
    this.app.go(["jobs", this.name, TABS[(at + by + TABS.length) % TABS.length][0]]);
  }

  async load(signal) {
    this.taken(await get(jobPath(this.name), { signal }));
  }

  async loadTab(signal) {
    await this.known;
    if (signal.aborted) return;
    await this.tab.load(signal);
    this.tabError = null;
    this.app.draw();
  }

  tabRefused(error) {
    if (error.status === 401) this.app.refused(error, this);
    else this.tabError = error;
    this.app.draw();
  }

  taken(job) {
    const before = this.job?.state;
    this.job = job;
    this.error = null;
    this.isKnown();
    if (!before) this.app.draw(() => this.seeTab());
    this.tab.noticed?.(job);
    if (before && before !== job.state) {
      this.app.announce(`${this.name} is ${job.state}${job.reason ? `: ${job.reason}` : ""}`);
    }
    this.app.draw();
  }

  view() {
    if (!this.job) return this.error ? [h("h1", {}, this.name), problem(this.error), h("p", {}, h("a", { href: "#/" }, "All jobs"))] : loading("the job");
    return [this.head(), this.tabs(),
      h("div", { class: "tab-panel", role: "tabpanel", id: "tab-panel", "aria-labelledby": `tab-${this.tabId}`, key: `${this.name} ${this.tabId}` },
        problem(this.tabError), this.tab.view())];
  }

  head() {
    const { job } = this;
    const isTrouble = ["failed", "waiting", "killed"].includes(job.state);
    return h("div", { class: "job-head", key: "head" },
      h("div", { class: "title-row" },
        h("h1", {}, this.name), pill(job.state),
        h("span", { class: "note since" }, job.since ? ["for ", h("span", { class: "fixed" }, duration(Math.max(0, Date.now() - job.since)))] : null),
        h("span", { class: "gap" }), this.actions.view()),
      problem(this.error, "status"),
      job.reason ? h("div", { class: isTrouble ? "problem" : "hint-box" }, h("p", { class: "fact" }, job.reason),
        job.state === "failed" ? h("p", { class: "hint" }, "See the ", h("a", { href: `#${jobPath(this.name, "logs")}` }, "logs"), " and the ",
          h("a", { href: `#${jobPath(this.name, "events")}` }, "events"), "; correct the program, then activate it, or upgrade to a corrected version.") : null) : null,
      (job.warnings ?? []).map((text) => h("p", { class: "warning", key: `warning ${text}` }, icon("warning"), h("span", {}, text))),
      facts([
        ["version", job.version], ["program", h("code", {}, job.program)], ["epoch", h("span", { class: "fixed" }, count(job.epoch))],
        ["last commit", job.committed ? when(job.committed, time(job.committed)) : null],
        ["parallelism", job.parallelism], ["master", job.master], ["process", job.pid], ["restarts", job.restarts ? count(job.restarts) : null],
      ]));
  }

  tabs() {
    const dead = this.job.dead;
    return h("div", { class: "tabs", key: "tabs", role: "tablist", "aria-label": `Views of ${this.name}`, onkeydown: (event) => this.tabKey(event) },
      TABS.map(([id, title]) => {
        const isShown = id === this.tabId;
        return h("a", {
          key: id, id: `tab-${id}`, role: "tab", href: `#${jobPath(this.name, id)}`,
          "aria-selected": String(isShown), "aria-controls": isShown ? "tab-panel" : null, tabindex: isShown ? "0" : "-1",
        }, title, id === "dead" && dead ? h("span", { class: "badge" }, count(dead)) : null);
      }));
  }

  tabKey(event) {
    const by = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (!by) return;
    event.preventDefault();
    this.moveTab(by);
  }
}

// All jobs: states to choose from, a filter, and a table that can be sorted by every column.

import { get, jobPath, path, post } from "../api.js";
import { h } from "../dom.js";
import { NONE, ago, count, duration, exact, plural, rate, seconds, short } from "../format.js";
import { icon } from "../icons.js";
import { button, empty, field, loading, pill, problem, sorted, sparkline, table } from "../parts.js";
import { Poll } from "../poll.js";

const EVERY = 2000;
const POINTS = 60; // of a sparkline
const PAST = 2 * 60_000; // milliseconds that it shows
const MOST_PAST = 100; // jobs whose past is asked for
const AT_ONCE = 4; // requests for the past of sparklines
const STATE_ORDER = ["failed", "waiting", "killed", "starting", "stopping", "draining", "running", "inactive", "ended"];

export class JobsView {
  constructor(app) {
    Object.assign(this, {
      app, title: "Jobs", crumbs: [], jobs: null, error: null, filter: "", state: null,
      order: { by: "name", down: false }, past: new Map(), before: new Map(),
    });
    this.poll = new Poll((signal) => this.load(signal), () => EVERY, app.connection, (error) => app.refused(error, this));
  }

  start() {
    this.poll.start();
  }

  stop() {
    this.poll.stop();
  }

  refresh() {
    this.poll.now();
  }

  async load(signal) {
    const { jobs } = await get(path(["jobs"]), { signal });
    const isFirst = this.jobs === null;
    this.jobs = jobs;
    this.error = null;
    const now = Date.now();
    for (const job of jobs) {
      const values = this.past.get(job.name) ?? [];
      values.push([now, job.rate_in ?? null]);
      this.past.set(job.name, values.filter(([at]) => at > now - PAST));
      const before = this.before.get(job.name);
      if (before && before !== job.state && job.state === "failed") {
        this.app.announce(`${job.name} failed: ${job.reason ?? "no reason was stored"}`);
      }
      this.before.set(job.name, job.state);
    }
    this.app.draw();
    if (isFirst) this.loadPast(signal);
  }

  /** The minutes before the page was opened, a few jobs at a time; sparklines grow without it, too. */
  async loadPast(signal) {
    const waiting = this.shown.filter((job) => job.state === "running").slice(0, MOST_PAST);
    const since = Date.now() - PAST;
    const one = async () => {
      for (let job = waiting.shift(); job; job = waiting.shift()) {
        const found = await get(path(["jobs", job.name, "series"], { since, names: "rate_in", points: POINTS }), { signal });
        const values = found.times.map((at, i) => [at, found.series.rate_in?.[i] ?? null]);
        const first = this.past.get(job.name)?.[0]?.[0] ?? Infinity;
        this.past.set(job.name, [...values.filter(([at]) => at < first), ...(this.past.get(job.name) ?? [])]);
      }
    };
    await Promise.allSettled(Array.from({ length: AT_ONCE }, one)); // what fails leaves a shorter line
    this.app.draw();
  }

  get shown() {
    const text = this.filter.trim().toLowerCase();
    const rows = this.jobs.filter((job) =>
      (!this.state || job.state === this.state)
      && (!text || `${job.name} ${job.state} ${job.program} ${job.reason ?? ""}`.toLowerCase().includes(text)));
    return sorted(rows, COLUMNS(this).find((c) => c.id === this.order.by), this.order.down);
  }

  sortBy(column) {
    this.order = { by: column.id, down: this.order.by === column.id ? !this.order.down : Boolean(column.number) };
    this.app.draw();
  }

  view() {
    if (this.jobs === null) return this.error ? problem(this.error) : loading("jobs");
    return [
      h("div", { class: "title-row", key: "title" }, h("h1", {}, "Jobs"), h("span", { class: "gap" }),
        this.app.mayOperate ? button("Submit a job", () => this.submit(), { name: "plus", tone: "main" }) : null),
      problem(this.error, "status"),
      this.jobs.length ? this.list() : empty("There is no job yet.",
        h("p", {}, "Submit a program here, or in a terminal: ", h("code", {}, "headrace submit job.py"), ".")),
    ];
  }

  list() {
    const { shown } = this;
    return h("div", { key: "list" },
      h("div", { class: "bar" }, this.stateButtons(),
        h("input", {
          type: "search", class: "filter", "data-filter": true, "aria-label": "Filter jobs", placeholder: "Filter", value: this.filter,
          oninput: (event) => {
            this.filter = event.target.value;
            this.app.draw();
          },
        }),
        h("span", { class: "note", role: "status" }, shown.length < this.jobs.length ? `${count(shown.length)} of ${plural(this.jobs.length, "job")}` : plural(this.jobs.length, "job"))),
      shown.length
        ? h("div", { class: "jobs" }, table({
            caption: "Jobs", columns: COLUMNS(this), rows: shown, key: (job) => job.name, order: this.order,
            onorder: (column) => this.sortBy(column),
          }))
        : empty("No job fits the filter."));
  }

  stateButtons() {
    const there = STATE_ORDER.filter((state) => this.state === state || this.jobs.some((job) => job.state === state));
    const choose = (state) => () => {
      this.state = this.state === state ? null : state;
      this.app.draw();
    };
    return h("div", { class: "states", role: "group", "aria-label": "Show only jobs of a state" }, there.map((state) =>
      h("button", { type: "button", key: state, class: "chip", "aria-pressed": String(this.state === state), onclick: choose(state) },
        pill(state), h("span", { class: "number" }, count(this.jobs.filter((job) => job.state === state).length)))));
  }

  submit() {
    const wanted = { program: "", job: "", activate: true };
    const { programs = [] } = this.app.server;
    const text = (name, more) => h("input", {
      type: "text", spellcheck: "false", autocomplete: "off", value: wanted[name], ...more,
      oninput: (event) => {
        wanted[name] = event.target.value;
        this.app.draw();
      },
    });
    this.app.dialogs.show({
      title: "Submit a job", label: "Submit",
      ready: () => wanted.program.trim() !== "",
      body: () => [
        h("p", {}, "A program that lies in a folder which the owner of this server has allowed: ",
          programs.length ? programs.map((p, i) => [i ? ", " : "", h("code", {}, p)]) : "there is none yet", "."),
        field("Program", text("program", { required: true, placeholder: `${programs[0] ?? "…"}/job.py` })),
        field("Job", text("job"), "Only if the program makes several."),
        h("label", { class: "check" }, h("input", { type: "checkbox", checked: wanted.activate, onchange: (event) => { wanted.activate = event.target.checked; } }), "Start it at once"),
      ],
      act: async () => {
        const body = { program: wanted.program.trim(), activate: wanted.activate };
        if (wanted.job.trim()) body.job = wanted.job.trim();
        const job = await post(path(["jobs"]), body);
        this.app.announce(`${job.name} was submitted`);
        this.app.go(["jobs", job.name]);
      },
    });
  }
}

const COLUMNS = (view) => [
  { id: "name", title: "Job", class: "name", sort: (job) => job.name, cell: (job) => [
    h("a", { href: `#${jobPath(job.name)}`, "data-row": true, class: "job-link" }, job.name),
    job.reason && job.state !== "running" ? h("span", { class: "note reason", title: job.reason }, job.reason)
      : job.warnings?.length ? h("span", { class: "note warned", title: job.warnings.join("\n") }, icon("warning"), h("span", {}, job.warnings[0])) : null,
  ] },
  { id: "state", title: "State", sort: (job) => STATE_ORDER.indexOf(job.state), cell: (job) => pill(job.state) },
  { id: "rate", title: "Rate", number: true, sort: (job) => job.rate_in, cell: (job) => [
    sparkline(view.past.get(job.name) ?? [], PAST), h("span", { class: "figure" }, rate(job.rate_in)) ] },
  { id: "lag", title: "Lag", number: true, sort: (job) => job.lag_rows, cell: (job) => [
    h("span", { class: "figure" }, short(job.lag_rows)), h("span", { class: "note" }, job.lag_seconds ? seconds(job.lag_seconds) : "") ] },
  { id: "latency", title: "Latency p95", number: true, sort: (job) => job.latency_p95, cell: (job) => duration(job.latency_p95) },
  { id: "watermark", title: "Watermark", number: true, sort: (job) => job.watermark_delay, cell: (job) => h("span", { title: exact(job.watermark) }, job.watermark_delay === null ? NONE : `−${seconds(job.watermark_delay)}`) },
  { id: "late", title: "Late", number: true, sort: (job) => job.late, cell: (job) => short(job.late) },
  { id: "dead", title: "Dead", number: true, sort: (job) => job.dead, cell: (job) =>
    h(job.dead ? "a" : "span", job.dead ? { href: `#${jobPath(job.name, "dead")}` } : {}, short(job.dead)) },
  { id: "busy", title: "Capacity", number: true, sort: (job) => job.capacity, cell: (job) => (job.capacity === null || job.capacity === undefined ? "–" : `${Math.round(job.capacity * 100)} %`) },
  { id: "commit", title: "Last commit", number: true, sort: (job) => job.committed, cell: (job) => h("span", { title: exact(job.committed) }, ago(job.committed)) },
];

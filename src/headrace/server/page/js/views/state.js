// The state of the steps, and SQL over it: read only, as of the last complete epoch.

import { get, path, post } from "../api.js";
import { h } from "../dom.js";
import { bytes, cell, count, plural } from "../format.js";
import { empty, loading, panel, problem, table } from "../parts.js";

const LIMIT = 200;
const quoted = (name) => (/^[a-z_][a-z0-9_]*$/.test(name) ? name : `"${name.replaceAll('"', '""')}"`);

export class State {
  constructor(app, of) {
    Object.assign(this, { app, of, steps: null, every: Infinity, step: null, sql: "", asking: null, answer: null, error: null });
  }

  async load(signal) {
    this.steps = (await get(path(["jobs", this.of.name, "state"]), { signal })).steps;
  }

  choose(step) {
    this.step = step;
    this.sql = `select * from ${quoted(step)}`;
    this.run();
  }

  async run(event) {
    event?.preventDefault();
    if (!this.sql.trim() || this.asking === this.sql) return;
    const asked = this.sql;
    Object.assign(this, { asking: asked, error: null });
    this.app.draw();
    let [answer, refused] = [null, null];
    try {
      answer = await post(path(["jobs", this.of.name, "state", "query"]), { step: this.step ?? this.steps[0]?.name, sql: asked, limit: LIMIT });
    } catch (error) {
      refused = error;
    }
    if (this.asking !== asked) return; // something else was asked meanwhile
    Object.assign(this, { asking: null, answer, error: refused });
    this.app.draw();
  }

  view() {
    if (!this.steps) return this.of.tabError ? null : loading("state");
    if (!this.steps.length) return empty("No step of this job has state.");
    return [this.list(), this.query(), this.answer ? this.rows() : null];
  }

  list() {
    return panel("Steps with state", table({
      caption: "Steps with state", rows: this.steps, key: (s) => s.name, columns: [
        { id: "name", title: "Step", cell: (s) => h("button", { type: "button", class: "link", "data-row": true, onclick: () => this.choose(s.name) }, s.name) },
        { id: "kind", title: "Kind", cell: (s) => s.kind },
        { id: "key", title: "Key", cell: (s) => (Array.isArray(s.key) ? s.key.join(", ") : s.key) || "no key" },
        { id: "rows", title: "Rows", number: true, cell: (s) => count(s.rows) },
        { id: "bytes", title: "On disk", number: true, cell: (s) => bytes(s.bytes) },
      ],
    }));
  }

  query() {
    return h("form", { class: "panel query", key: "query", "aria-label": "Query", onsubmit: (event) => this.run(event) },
      h("h2", { id: "query-title" }, "Query"),
      h("textarea", {
        rows: "3", spellcheck: "false", "data-filter": true, "aria-labelledby": "query-title", "aria-describedby": "query-note", placeholder: `select * from ${quoted(this.steps[0].name)}`,
        value: this.sql,
        oninput: (event) => {
          this.sql = event.target.value;
          this.app.draw();
        },
        onkeydown: (event) => (event.ctrlKey || event.metaKey) && event.key === "Enter" && this.run(event),
      }),
      h("div", { class: "bar" },
        h("button", { type: "submit", class: "main", disabled: this.asking === this.sql || !this.sql.trim() }, this.asking === this.sql && this.asking ? "Running …" : "Run"),
        h("span", { class: "note", id: "query-note" }, "One select of DuckDB's SQL; each step is a table. Ctrl Enter runs it.")),
      problem(this.error));
  }

  rows() {
    const { columns, rows, epoch, more } = this.answer;
    const isNumber = columns.map((_, i) => rows.some((row) => typeof row[i] === "number"));
    return panel(`${plural(rows.length, "row")}${more ? ` of ${count(rows.length + more)}` : ""}${epoch === undefined || epoch === null ? "" : `, as of epoch ${count(epoch)}`}`,
      table({
        caption: "Result of the query", rows: rows.map((row, i) => ({ row, i })), key: ({ i }) => i,
        columns: columns.map((name, i) => ({
          id: `${i}`, title: name, number: isNumber[i],
          cell: ({ row }) => (row[i] === null ? h("span", { class: "null" }, "null") : cell(row[i])),
        })),
      }));
  }
}

// Epochs of a job that have a name, and are stored until they are deleted.

import { get, jobPath, path, post, remove } from "../api.js";
import { h } from "../dom.js";
import { bytes, count } from "../format.js";
import { button, empty, field, loading, panel, problem, table, when } from "../parts.js";

export class Savepoints {
  constructor(app, of) {
    Object.assign(this, { app, of, all: null, every: Infinity, name: "", busy: false, error: null });
  }

  async load(signal) {
    this.all = (await get(path(["jobs", this.of.name, "savepoints"]), { signal })).savepoints;
  }

  async create(event) {
    event.preventDefault();
    Object.assign(this, { busy: true, error: null });
    this.app.draw();
    try {
      await post(jobPath(this.of.name, "savepoints"), { name: this.name.trim() });
      this.app.announce(`Savepoint ${this.name.trim()} was made`);
      this.name = "";
    } catch (error) {
      this.error = error;
    }
    this.busy = false;
    this.of.tabPoll.now();
    this.app.draw();
  }

  delete(name) {
    this.app.dialogs.show({
      title: `Delete savepoint ${name}?`, label: "Delete", danger: true,
      body: () => h("p", {}, "The job can no longer go back to it, nor another one begin with it."),
      act: async () => {
        await remove(jobPath(this.of.name, "savepoints", name));
        this.app.announce(`Savepoint ${name} was deleted`);
        this.of.tabPoll.now();
      },
    });
  }

  view() {
    if (!this.all) return this.of.tabError ? null : loading("savepoints");
    return [this.app.mayOperate ? this.form() : null, this.list()];
  }

  form() {
    return h("form", { class: "panel", key: "form", "aria-label": "Make a savepoint", onsubmit: (event) => this.create(event) },
      h("h2", {}, "Make a savepoint"),
      h("p", { class: "note" }, "It names the newest epoch, and copies nothing; the job goes on meanwhile."),
      h("div", { class: "fields" }, field("Name", h("input", {
        type: "text", required: true, spellcheck: "false", autocomplete: "off", value: this.name, "data-filter": true,
        oninput: (event) => {
          this.name = event.target.value;
          this.app.draw();
        },
      }))),
      problem(this.error),
      h("button", { type: "submit", class: "main", disabled: this.busy || !this.name.trim() }, this.busy ? "Working …" : "Make it"));
  }

  list() {
    if (!this.all.length) return empty("This job has no savepoint.");
    return panel("Savepoints", table({
      caption: "Savepoints", rows: this.all, key: (s) => s.name, columns: [
        { id: "name", title: "Name", cell: (s) => s.name },
        { id: "epoch", title: "Epoch", number: true, cell: (s) => count(s.epoch) },
        { id: "committed", title: "Committed", number: true, cell: (s) => when(s.committed) },
        { id: "created", title: "Made", number: true, cell: (s) => when(s.created) },
        { id: "bytes", title: "State", number: true, cell: (s) => bytes(s.bytes) },
        { id: "error", title: "", class: "text", cell: (s) => s.error ?? "" },
        ...(this.app.mayOperate ? [{ id: "delete", title: "", class: "buttons", cell: (s) => button("Delete …", () => this.delete(s.name)) }] : []),
      ],
    }));
  }
}

// The versions of a job's program, and the way to another one: its plan first, then the upgrade.

import { post, path } from "../api.js";
import { h } from "../dom.js";
import { button, empty, field, panel, problem, table, when } from "../parts.js";

export class Versions {
  constructor(app, of) {
    Object.assign(this, { app, of, program: null, drop: "", plan: null, error: null, busy: false });
  }

  get body() {
    const body = {};
    const program = this.program?.trim();
    if (program) body.program = program;
    const drop = this.drop.split(",").map((name) => name.trim()).filter(Boolean);
    if (drop.length) body.drop = drop;
    return body;
  }

  async showPlan(event) {
    event?.preventDefault();
    const asked = JSON.stringify(this.body);
    const isStill = () => asked === JSON.stringify(this.body); // else it is the plan of another upgrade
    Object.assign(this, { busy: true, error: null, plan: null });
    this.app.draw();
    try {
      const plan = await this.ask(true);
      if (isStill()) this.plan = plan;
    } catch (error) {
      if (isStill()) this.error = error;
    }
    this.busy = false;
    this.app.draw();
  }

  ask(isDry) {
    return post(path(["jobs", this.of.name, "upgrade"]), isDry ? { ...this.body, dry_run: true } : this.body);
  }

  upgrade() {
    this.app.dialogs.show({
      title: `Upgrade ${this.of.name}?`, label: "Upgrade",
      body: () => h("p", {}, "A savepoint is made, the job stops after the batch in hand, and the new version goes on from there. If it fails before its first commit, the version that runs now comes back."),
      act: async () => {
        await this.ask(false);
        this.plan = null;
        this.app.announce(`${this.of.name}: the upgrade was asked for`);
        this.of.refresh();
      },
    });
  }

  view() {
    return [this.list(), this.app.mayOperate ? this.form() : null, this.plan ? this.planned() : null];
  }

  list() {
    const { versions = [] } = this.of.job;
    if (!versions.length) return empty("No version is stored.");
    return panel("Versions", table({
      caption: "Versions", rows: [...versions].sort((a, b) => b.version - a.version), key: (v) => v.version, columns: [
        { id: "version", title: "Version", cell: (v) => [String(v.version), v.current ? h("span", { class: "tag" }, "current") : null] },
        { id: "outcome", title: "Outcome", cell: (v) => v.outcome ?? "" },
        { id: "program", title: "Program", class: "text", cell: (v) => h("code", {}, v.program) },
        { id: "submitted", title: "Submitted", class: "when", cell: (v) => when(v.submitted) },
        { id: "by", title: "By", cell: (v) => v.by ?? "" },
        { id: "digest", title: "Digest", cell: (v) => h("code", { title: v.digest }, (v.digest ?? "").slice(0, 12)) },
        { id: "note", title: "Note", class: "text", cell: (v) => v.note ?? "" },
      ],
    }));
  }

  form() {
    const isLegal = (this.of.job.verbs ?? []).includes("upgrade");
    const text = (name, value, more) => h("input", {
      type: "text", spellcheck: "false", autocomplete: "off", value, ...more,
      oninput: (event) => {
        Object.assign(this, { [name]: event.target.value, plan: null });
        this.app.draw();
      },
    });
    return h("form", { class: "panel", key: "upgrade", "aria-label": "Upgrade", onsubmit: (event) => this.showPlan(event) },
      h("h2", {}, "Upgrade"),
      isLegal ? h("p", { class: "note" }, "First see what becomes of each step, input and output; nothing is changed by that.")
        : h("p", { class: "note" }, `Not while the job is ${this.of.job.state}.`),
      h("div", { class: "fields" },
        field("Program", text("program", this.program ?? this.of.job.program, { "data-filter": true }), "The file as it is now, or another one in a folder that the owner of the server allowed."),
        field("Drop", text("drop", this.drop, { placeholder: "none" }), "Names of steps, inputs or outputs that may be lost, with commas between.")),
      problem(this.error),
      h("button", { type: "submit", class: this.plan ? "" : "main", disabled: this.busy || !isLegal }, this.busy ? "Comparing …" : "Show the plan"));
  }

  planned() {
    const { text, refused, code, version } = this.plan;
    return h("section", { class: "panel", key: "planned", "aria-label": "What the upgrade does", role: "status" },
      h("h2", {}, refused ? "The upgrade would be refused" : `What the upgrade to version ${version} does`),
      refused && code ? h("p", {}, h("code", {}, code)) : null,
      h("pre", { tabindex: "0", "aria-label": "Plan" }, text),
      refused ? h("p", { class: "note" }, "Correct the program, or name under Drop what may be lost, and look again.")
        : button("Upgrade …", () => this.upgrade(), { tone: "main" }));
  }
}

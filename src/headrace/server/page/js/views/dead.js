// Dead letters: by step and reason, one looked at, and some or all sent again.

import { get, path, post } from "../api.js";
import { h } from "../dom.js";
import { NONE, cell, count, exact, plural, time } from "../format.js";
import { button, empty, facts, loading, panel, problem, table, when } from "../parts.js";

const MOST = 100;
const AGAIN = 10_000;

export class Dead {
  constructor(app, of) {
    Object.assign(this, { app, of, found: null, groups: [], every: Infinity, group: null, open: null, letter: null, letterError: null, marked: new Set(), loaded: 0 });
  }

  async load(signal) {
    const { group } = this;
    this.seen = this.of.job.dead;
    const found = await get(path(["jobs", this.of.name, "dead"], { step: group?.step, reason: group?.error, limit: MOST }), { signal });
    if (group !== this.group) return; // another one was chosen meanwhile
    this.loaded = Date.now();
    this.groups = group ? this.groups : found.groups;
    this.found = found;
  }

  /** Letters are read by a process of its own, so only when there are others. */
  noticed(job) {
    if (this.found && job.dead !== this.seen && Date.now() - this.loaded > AGAIN) this.of.tabPoll.now();
  }

  choose(group) {
    const isSame = this.group && group && this.group.step === group.step && this.group.error === group.error;
    Object.assign(this, { group: isSame ? null : group, open: null, letter: null });
    this.marked.clear();
    this.of.tabPoll.now();
    this.app.draw();
  }

  async openLetter(number) {
    Object.assign(this, { open: this.open === number ? null : number, letter: null, letterError: null });
    this.app.draw();
    if (this.open === null) return;
    try {
      const letter = await get(path(["jobs", this.of.name, "dead", String(number)]));
      if (this.open === number) this.letter = letter;
    } catch (error) {
      if (this.open === number) this.letterError = error;
    }
    this.app.draw();
  }

  /** What would be sent again is asked of the server before, and shown. */
  async replay(what, choice) {
    let [dry, refused] = [null, null];
    this.app.dialogs.show({
      title: `Replay ${what}?`, label: "Replay", wide: true,
      body: () => [
        h("p", {}, "They enter the step that failed on them once more, and go on from there to the outputs, exactly once. Correct the program first: what fails again is a new dead letter."),
        refused ? problem(refused) : dry ? replayFound(dry) : loading("what can be sent again"),
      ],
      ready: () => Boolean(dry?.asked),
      act: async () => {
        const done = await post(path(["jobs", this.of.name, "dead", "replay"]), choice);
        this.app.announce(`${plural(done.asked ?? 0, "dead letter")} will be replayed`);
        this.marked.clear();
        this.of.refresh();
      },
    });
    try {
      dry = await post(path(["jobs", this.of.name, "dead", "replay"]), { ...choice, dry_run: true });
    } catch (error) {
      refused = error;
    }
    this.app.draw();
  }

  mark(number, on) {
    if (on) this.marked.add(number);
    else this.marked.delete(number);
    this.app.draw();
  }

  view() {
    if (!this.found) return this.of.tabError ? null : loading("dead letters");
    const { found } = this;
    if (!this.groups.length && !found.letters.length) return empty("There are no dead letters: no row has failed.");
    return [this.reasons(), this.letters()];
  }

  reasons() {
    const choose = (g) => h("button", {
      type: "button", class: "link", "data-row": true, "aria-pressed": String(this.group?.step === g.step && this.group?.error === g.error), onclick: () => this.choose(g),
    }, g.error || NONE);
    return panel("By reason", table({
      caption: "Dead letters by reason", rows: this.groups, key: (g) => `${g.step}\n${g.error}`, columns: [
        { id: "error", title: "Reason", class: "text", cell: choose },
        { id: "step", title: "Step", cell: (g) => g.step },
        { id: "count", title: "Letters", number: true, cell: (g) => count(g.count) },
        { id: "first", title: "First", number: true, cell: (g) => when(g.first) },
        { id: "last", title: "Last", number: true, cell: (g) => when(g.last) },
        ...(this.app.mayOperate ? [{ id: "replay", title: "", class: "buttons", cell: (g) =>
          button("Replay …", () => this.replay(`all ${plural(g.count, "letter")} of this reason`, { step: g.step, reason: g.error })) }] : []),
      ],
    }));
  }

  letters() {
    const { found, group } = this;
    const marks = this.app.mayOperate ? [{ id: "mark", title: "", class: "mark", cell: (l) => h("input", {
      type: "checkbox", "aria-label": `Mark letter ${l.number}`, checked: this.marked.has(l.number), onchange: (event) => this.mark(l.number, event.target.checked),
    }) }] : [];
    return panel(group ? `Letters: ${group.error}` : "Newest letters",
      h("div", { class: "bar" },
        h("span", { class: "note" }, `${plural(found.total, "letter")}${found.letters.length < found.total ? `, the newest ${count(found.letters.length)} here` : ""}`),
        h("span", { class: "gap" }),
        group ? button("All reasons", () => this.choose(null)) : null,
        this.app.mayOperate ? button(this.marked.size ? `Replay ${count(this.marked.size)} marked …` : "Replay all …",
          () => (this.marked.size ? this.replay(plural(this.marked.size, "letter"), { numbers: [...this.marked] })
            : this.replay("all dead letters", group ? { step: group.step, reason: group.error } : {}))) : null),
      table({
        caption: "Dead letters", rows: [...found.letters].sort((a, b) => b.number - a.number), key: (l) => l.number,
        opened: (l) => this.open === l.number, detail: (l) => this.detail(l),
        columns: [
          { id: "number", title: "Number", cell: (l) => h("button", {
            type: "button", class: "link", "data-row": true, "aria-expanded": String(this.open === l.number), onclick: () => this.openLetter(l.number),
          }, `#${l.number}`) },
          { id: "time", title: "Time", class: "when", cell: (l) => when(l.time) },
          { id: "step", title: "Step", cell: (l) => l.step },
          { id: "error", title: "Error", class: "text", cell: (l) => l.error },
          { id: "place", title: "Place", cell: (l) => l.place },
          ...marks,
        ],
      }));
  }

  detail(letter) {
    if (this.letterError) return problem(this.letterError);
    if (!this.letter) return loading("the letter");
    const { record, traceback, error, ...rest } = this.letter;
    const shown = Object.entries(rest).filter(([, v]) => v !== null && v !== "");
    return h("div", { class: "letter" },
      facts(shown.map(([name, v]) => [name, name === "time" ? h("span", { title: exact(v) }, time(v)) : cell(v)])),
      h("h4", {}, "Error"), h("pre", { tabindex: "0", "aria-label": "Error" }, error ?? ""),
      h("h4", {}, "Record"), h("pre", { tabindex: "0", "aria-label": "Record" }, typeof record === "string" ? record : cell(record)),
      traceback ? [h("h4", {}, "Traceback"), h("pre", { tabindex: "0", "aria-label": "Traceback" }, traceback)] : null,
      this.app.mayOperate ? button("Replay this letter …", () => this.replay(`letter #${letter.number}`, { numbers: [letter.number] })) : null);
  }
}

/** What the server says of a replay: how many, and which cannot be sent again and why. */
function replayFound({ asked = 0, waiting = 0, refused = [] }) {
  return [
    h("p", {}, h("strong", {}, plural(asked, "dead letter")), " will be replayed.",
      waiting ? ` ${count(waiting)} wait to be replayed since they were asked for before.` : ""),
    refused.length ? [h("p", {}, `${plural(refused.length, "letter")} cannot be:`),
      h("ul", { class: "refused" }, refused.slice(0, 20).map((one) => h("li", {}, `#${one.number} (step ${one.step}): ${one.why}`)))] : null,
  ];
}

// What may be done with a job: the verbs of its life cycle, each with what it does. Only those that are
// legal in its state can be pressed, and each that changes what runs asks first.

import { jobPath, post, remove } from "./api.js";
import { h } from "./dom.js";
import { icon } from "./icons.js";
import { button, field } from "./parts.js";

const VERBS = [
  { verb: "activate", label: "Activate", icon: "play", says: "Start its process; it goes on after its last epoch." },
  { verb: "deactivate", label: "Deactivate", icon: "pause", says: "Stop after the batch in hand. State and offsets stay." },
  { verb: "restart", label: "Restart", icon: "restart", says: "Stop after the batch in hand, and start again." },
  { verb: "rebalance", label: "Rebalance …", says: "Change how many tasks it has; restarts it if it runs." },
  { verb: "upgrade", label: "Upgrade …", says: "Go on with another version of the program. Its plan is shown before." },
  { verb: "drain", label: "Drain …", says: "Read what is there, close all windows, emit their results, and end." },
  { verb: "kill", label: "Kill …", danger: true, says: "End the process at once. The batch in hand is read again later." },
  { verb: "remove", label: "Remove …", danger: true, says: "Forget the job here. Its folder, with all state, stays." },
];

export class Actions {
  constructor(app, of) {
    Object.assign(this, { app, of, isOpen: false });
    this.elsewhere = (event) => {
      if (this.isOpen && !event.target.closest?.(".actions")) this.close();
    };
    document.addEventListener("click", this.elsewhere);
  }

  stop() {
    document.removeEventListener("click", this.elsewhere);
  }

  get verbs() {
    return this.app.mayOperate ? (this.of.job.verbs ?? []) : [];
  }

  close(focus = false) {
    this.isOpen = false;
    this.app.draw(() => focus && document.querySelector("[data-actions]")?.focus());
  }

  toggle() {
    this.isOpen = !this.isOpen;
    this.app.draw(() => this.isOpen && document.querySelector(".menu [role=menuitem]")?.focus());
  }

  choose(one) {
    this.isOpen = false;
    if (one.verb === "upgrade") {
      this.app.go(["jobs", this.of.name, "versions"]);
      return;
    }
    this.confirm(one);
  }

  confirm(one) {
    const { job } = this.of;
    const wanted = { parallelism: job.parallelism ?? "" };
    const bodies = {
      rebalance: () => [h("p", {}, one.says),
        field("Tasks of a level", h("input", {
          type: "number", min: "1", max: "10000", required: true, value: String(wanted.parallelism),
          oninput: (event) => {
            wanted.parallelism = event.target.value;
            this.app.draw();
          },
        }))],
      drain: () => [h("p", {}, one.says), h("p", {}, "Rows that come later and belong to windows that were closed are late.")],
      kill: () => [h("p", {}, one.says), h("p", {}, "Deactivate stops it without reading anything twice.")],
    };
    this.app.dialogs.show({
      title: `${one.label.replace(" …", "")} ${job.name}?`, label: one.label.replace(" …", ""), danger: Boolean(one.danger),
      body: bodies[one.verb] ?? (() => h("p", {}, one.says)),
      ready: () => one.verb !== "rebalance" || Number(wanted.parallelism) >= 1,
      act: () => this.act(one.verb, one.verb === "rebalance" ? { parallelism: Number(wanted.parallelism) } : {}),
    });
  }

  async act(verb, body) {
    const { name } = this.of;
    if (verb === "remove") {
      await remove(jobPath(name));
      this.app.announce(`${name} was removed`);
      this.app.go([]);
      return;
    }
    await post(jobPath(name, verb), body);
    this.app.announce(`${name}: ${verb} was asked for`);
    this.of.refresh();
  }

  menuKey(event) {
    const items = [...event.currentTarget.querySelectorAll("[role=menuitem]")];
    const at = items.indexOf(document.activeElement);
    const to = { ArrowDown: at + 1, ArrowUp: at - 1, Home: 0, End: items.length - 1 }[event.key];
    if (event.key === "Escape") {
      event.preventDefault();
      this.close(true);
    } else if (event.key === "Tab") {
      this.close();
    } else if (to !== undefined) {
      event.preventDefault();
      items[(to + items.length) % items.length].focus();
    }
  }

  menu() {
    const { state } = this.of.job;
    return h("div", { class: "menu", role: "menu", "aria-label": "Actions", onkeydown: (event) => this.menuKey(event) }, VERBS.map((one) => {
      const isLegal = this.verbs.includes(one.verb);
      return h("button", {
        type: "button", role: "menuitem", key: one.verb, "aria-disabled": String(!isLegal), tabindex: "-1",
        class: one.danger ? "danger-text" : "", "data-verb": one.verb,
        onclick: () => isLegal && this.choose(one),
      }, h("span", { class: "verb" }, one.label),
        h("span", { class: "note" }, isLegal ? one.says : this.app.mayOperate ? `Not while it is ${state}.` : "Your token may only read."));
    }));
  }

  view() {
    const quick = VERBS.slice(0, 3).filter((one) => this.verbs.includes(one.verb));
    return h("div", { class: "actions" },
      quick.map((one) => h("span", { key: one.verb, class: "quick" }, button(one.label, () => this.confirm(one), { name: one.icon, title: one.says }))),
      h("button", {
        type: "button", key: "more", "data-actions": true, "aria-haspopup": "menu", "aria-expanded": String(this.isOpen), onclick: () => this.toggle(),
      }, "Actions", icon("down")),
      this.isOpen ? this.menu() : null);
  }
}

// What happened to any job, newest first.

import { jobPath } from "../api.js";
import { h } from "../dom.js";
import { problem } from "../parts.js";
import { Poll } from "../poll.js";
import { EVENT_COLUMNS, EventList } from "./events.js";

const EVERY = 2000;

export class EventsView {
  constructor(app) {
    Object.assign(this, { app, title: "Events", crumbs: ["events"], list: new EventList(), error: null });
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
    await this.list.load(["events"], signal);
    this.error = null;
    this.app.draw();
  }

  view() {
    const job = { id: "job", title: "Job", class: "whole", cell: (e) => (e.job ? h("a", { href: `#${jobPath(e.job)}`, "data-row": true }, e.job) : "") };
    return [h("h1", {}, "Events"), problem(this.error), this.list.view([EVENT_COLUMNS[0], job, ...EVENT_COLUMNS.slice(1)])];
  }
}

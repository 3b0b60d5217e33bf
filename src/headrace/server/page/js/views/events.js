// What happened to a job, newest first.

import { get, path } from "../api.js";
import { h } from "../dom.js";
import { empty, loading, table, when } from "../parts.js";

const MOST = 500;

/** The newest events there are; those after the last one known are added. */
export class EventList {
  constructor() {
    Object.assign(this, { events: null });
  }

  async load(parts, signal) {
    const last = this.events?.[0]?.id;
    const { events } = await get(path(parts, { after: last, limit: 200 }), { signal });
    const known = new Set((this.events ?? []).map((e) => e.id));
    const fresh = events.filter((e) => !known.has(e.id));
    this.events = [...fresh, ...(this.events ?? [])].sort((a, b) => b.id - a.id).slice(0, MOST);
  }

  view(columns) {
    if (this.events === null) return loading("events");
    if (!this.events.length) return empty("Nothing has happened yet.");
    return h("div", { class: "panel" }, table({ caption: "Events, newest first", rows: this.events, key: (e) => e.id, columns }));
  }
}

export const EVENT_COLUMNS = [
  { id: "time", title: "Time", class: "when", cell: (e) => when(e.time) },
  { id: "kind", title: "What", class: "whole", cell: (e) => h("span", { class: "tag" }, e.kind) },
  { id: "text", title: "Text", class: "text", cell: (e) => e.text },
  { id: "by", title: "By", class: "whole", cell: (e) => e.by ?? "" },
];

export class Events {
  constructor(app, of) {
    Object.assign(this, { app, of, list: new EventList() });
  }

  load(signal) {
    return this.list.load(["jobs", this.of.name, "events"], signal);
  }

  view() {
    return this.list.view(EVENT_COLUMNS);
  }
}

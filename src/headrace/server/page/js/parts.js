// The small parts that all views are made of.

import { h } from "./dom.js";
import { exact, percent, time } from "./format.js";
import { icon } from "./icons.js";

const TONES = {
  running: "good", starting: "busy", stopping: "busy", draining: "busy", waiting: "warn",
  failed: "bad", killed: "bad", ended: "calm", inactive: "calm",
};
export const STATES = Object.keys(TONES);

/** The state of a job: a shape, a word and a colour. */
export const pill = (state) => h("span", { class: `pill ${TONES[state] ?? "calm"}` }, icon(state), state);

export const when = (ms, text = time(ms)) => h("time", { title: exact(ms), datetime: exact(ms) }, text);

/** What the server refused, or what went wrong: what is so, and what can be done. */
export function problem(error, role = "alert") {
  if (!error) return null;
  return h("div", { class: "problem", role },
    h("p", { class: "fact" }, error.code ? [h("code", {}, error.code), " "] : null, error.fact ?? error.message),
    error.hint ? h("p", { class: "hint" }, error.hint) : null);
}

export const empty = (text, ...more) => h("div", { class: "empty" }, h("p", {}, text), ...more);
export const loading = (what) => h("p", { class: "empty", "aria-busy": "true" }, `Loading ${what} …`);
export const panel = (title, ...children) =>
  h("section", { class: "panel", "aria-label": title }, h("h2", {}, title), ...children);

/** A share from 0 to 1 as a bar with its number. */
export function meter(share, label) {
  const known = share !== null && share !== undefined;
  const value = known ? Math.max(0, Math.min(1, share)) : 0;
  return h("span", { class: "meter" },
    h("span", { class: "track", "aria-hidden": "true" },
      h("span", { class: `fill${value > 0.9 ? " full" : ""}`, vars: { "--share": value.toFixed(3) } })),
    h("span", { class: "number" }, percent(share)),
    label ? h("span", { class: "hidden-but-read" }, ` ${label}`) : null);
}

/** Rows a second into a step and out of it. Nothing goes into what reads, nothing comes out of what writes. */
export const flow = (step) => ({ in: step?.kind === "read" ? null : step?.rate_in, out: step?.kind === "write" ? null : step?.rate_out });

/** A figure with its name; `note` says more in small letters. */
export const tile = (name, value, note, tone) =>
  h("div", { class: `tile${tone ? ` ${tone}` : ""}` },
    h("dt", {}, name), h("dd", {}, value), h("dd", { class: "note" }, note ?? " "));

export const tiles = (...all) => h("dl", { class: "tiles" }, ...all);

export const facts = (pairs) =>
  h("dl", { class: "facts" }, pairs.filter(([, value]) => value !== null && value !== undefined && value !== "").map(
    ([name, value]) => h("div", { key: name }, h("dt", {}, name), h("dd", {}, value))));

/** A table whose columns are {id, title, cell(row), number?, sort?(row)}; `order` is {by, down}.
 *  A `steady` one does not fit its columns to what is in them. */
export function table({ caption, steady, columns, rows, key, order, onorder, opened, detail }) {
  return h("div", { class: "scroll", role: "region", tabindex: "0", "aria-label": caption },
    h("table", { class: steady ? "steady" : null },
      h("caption", { class: "hidden-but-read" }, caption),
      h("thead", {}, h("tr", {}, columns.map((column) => heading(column, order, onorder)))),
      h("tbody", {}, rows.flatMap((row, number) => {
        const name = `row ${key ? key(row) : number}`;
        const line = h("tr", { key: name }, columns.map((column, i) =>
          h(i === 0 ? "th" : "td", { class: column.number ? "number" : column.class, scope: i === 0 ? "row" : null, "data-label": column.title }, column.cell(row))));
        if (!detail || !opened?.(row)) return [line];
        return [line, h("tr", { key: `${name} detail`, class: "detail" }, h("td", { colspan: columns.length }, detail(row)))];
      }))));
}

function heading(column, order, onorder) {
  const isBy = order?.by === column.id;
  const sort = column.sort && onorder ? { "aria-sort": isBy ? (order.down ? "descending" : "ascending") : "none" } : {};
  const title = column.sort && onorder
    ? h("button", { type: "button", class: "sort", onclick: () => onorder(column) },
        column.title, h("span", { class: `arrow${isBy ? "" : " unset"}` }, icon(isBy && order.down ? "down" : "up")))
    : column.title;
  return h("th", { scope: "col", class: column.number ? "number" : column.class, ...sort }, title);
}

/** Rows in order; what is unknown comes last whichever way. */
export function sorted(rows, column, down) {
  const value = (row) => column.sort(row) ?? null;
  return [...rows].sort((a, b) => {
    const [x, y] = [value(a), value(b)];
    if (x === null || y === null) return (x === null) - (y === null);
    const order = typeof x === "string" ? x.localeCompare(y, "en", { numeric: true }) : x - y;
    return down ? -order : order;
  });
}

/** A line over the last `past` milliseconds, without axes; `values` are [time, value]. */
export function sparkline(values, past, now = Date.now()) {
  const [wide, high] = [96, 22];
  const known = values.filter(([at, v]) => v !== null && v !== undefined && at >= now - past);
  const top = Math.max(...known.map(([, v]) => v)) || 1;
  const points = known.map(([at, v]) =>
    `${(wide * (1 - (now - at) / past)).toFixed(1)},${(high - 2 - (v / top) * (high - 4)).toFixed(1)}`);
  return h("svg", { class: "spark", viewBox: `0 0 ${wide} ${high}`, "aria-hidden": "true", preserveAspectRatio: "none" },
    h("path", { class: "ground", d: `M0 ${high - 1}H${wide}` }), h("polyline", { points: points.join(" ") }));
}

/** A control with its label, and what there is to know about it. */
export function field(label, control, note) {
  const id = `field-${label.toLowerCase().replaceAll(" ", "-")}`;
  Object.assign(control.props, { id, "aria-describedby": note ? `${id}-note` : null });
  return h("div", { class: "field" }, h("label", { for: id, class: "label" }, label), control,
    note ? h("span", { class: "note", id: `${id}-note` }, note) : null);
}

export const button = (label, onclick, { disabled, tone, name, title } = {}) =>
  h("button", { type: "button", class: tone ?? "", disabled: Boolean(disabled), title, onclick },
    name ? icon(name) : null, label);

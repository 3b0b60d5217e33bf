// Numbers, durations and times as people read them. What is not known is a dash.

export const NONE = "–";
const known = (value) => value !== null && value !== undefined && Number.isFinite(Number(value));
const whole = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });
const tenths = new Intl.NumberFormat("en", { maximumFractionDigits: 1 });
const twoDigits = new Intl.NumberFormat("en", { maximumSignificantDigits: 2 });
/** Of less than one, so that little is not nothing. */
const small = { format: (value) => (value && Math.abs(value) < 1e-3 ? value.toExponential(1) : twoDigits.format(value)) };
const SIZES = [["", 1], ["k", 1e3], ["M", 1e6], ["G", 1e9], ["T", 1e12], ["P", 1e15]];
const BYTES = ["B", "kB", "MB", "GB", "TB"];

/** Nobody counts the zeros of 1e300. */
const digits = (form, value) => (Math.abs(value) < 1e15 ? form.format(value) : value.toExponential(2));

/** 1,234,567 */
export const count = (value) => (known(value) ? digits(whole, Number(value)) : NONE);

/** 12.3 k */
export function short(value) {
  if (!known(value)) return NONE;
  const size = Math.abs(value);
  if (size < 1) return small.format(value);
  if (size < 10 && !Number.isInteger(value)) return tenths.format(value);
  if (size < 10_000) return whole.format(value);
  const [unit, by] = SIZES.findLast(([, one]) => size >= one);
  return `${digits(size / by < 100 ? tenths : whole, value / by)} ${unit}`;
}

export const rate = (value) => (known(value) ? `${short(value)}/s` : NONE);

export function bytes(value) {
  if (!known(value)) return NONE;
  let [size, unit] = [value, 0];
  while (Math.abs(size) >= 1000 && unit < BYTES.length - 1) [size, unit] = [size / 1000, unit + 1];
  return `${digits(unit && Math.abs(size) < 100 ? tenths : whole, size)} ${BYTES[unit]}`;
}

/** A length of time in two units at most: 340 ms, 1.2 s, 3 min 20 s, 2 h 5 min. */
export function duration(ms) {
  if (!known(ms)) return NONE;
  const size = Math.abs(ms);
  const sign = ms < 0 ? "−" : "";
  if (size < 1000) return `${sign}${(size < 1 ? small : size < 10 ? tenths : whole).format(size)} ms`;
  if (size < 60_000) return `${sign}${tenths.format(size / 1000)} s`;
  const seconds = Math.round(size / 1000);
  const pair = (one, a, two, b) => `${sign}${one} ${a}${two ? ` ${two} ${b}` : ""}`;
  if (seconds < 3600) return pair(Math.floor(seconds / 60), "min", seconds % 60, "s");
  const minutes = Math.round(seconds / 60);
  if (minutes < 1440) return pair(Math.floor(minutes / 60), "h", minutes % 60, "min");
  const hours = Math.round(minutes / 60);
  return hours < 1e6 ? pair(Math.floor(hours / 24), "d", hours % 24, "h") : `${sign}${digits(whole, hours / 24)} d`;
}

export const seconds = (value) => (known(value) ? duration(value * 1000) : NONE);
export const percent = (value) => (known(value) ? `${value > 0 && value < 0.005 ? "<1" : digits(whole, value * 100)} %` : NONE);

const two = (n) => String(n).padStart(2, "0");

/** 14:03:27 of today, or 19 Nov 14:03 of another day. */
export function time(ms, now = Date.now()) {
  if (!known(ms)) return NONE;
  const at = new Date(ms);
  if (Number.isNaN(at.getTime())) return String(ms); // beyond what a calendar has
  const clock = `${two(at.getHours())}:${two(at.getMinutes())}`;
  const isToday = at.toDateString() === new Date(now).toDateString();
  if (isToday) return `${clock}:${two(at.getSeconds())}`;
  const month = at.toLocaleString("en", { month: "short" });
  const isThisYear = at.getFullYear() === new Date(now).getFullYear();
  return `${at.getDate()} ${month} ${isThisYear ? "" : `${at.getFullYear()} `}${clock}`;
}

/** In full and in UTC, for the title of a time. */
export function exact(ms) {
  if (!known(ms)) return undefined;
  const at = new Date(ms);
  return Number.isNaN(at.getTime()) ? String(ms) : at.toISOString();
}

/** In one unit, and not below a second: a list is read at a glance. */
export function ago(ms, now = Date.now()) {
  if (!known(ms)) return NONE;
  const size = Math.max(0, now - ms) / 1000;
  const [unit, by] = [["d", 86_400], ["h", 3600], ["min", 60], ["s", 1]].find(([, one]) => size >= one) ?? ["s", 1];
  return `${digits(whole, Math.floor(size / by))} ${unit} ago`;
}

export const plural = (n, one, many = `${one}s`) => `${count(n)} ${n === 1 ? one : many}`;

/** A value of a cell: JSON for what is no text or number. */
export function cell(value) {
  if (value === null || value === undefined) return "null";
  return typeof value === "object" ? JSON.stringify(value) : String(value);
}

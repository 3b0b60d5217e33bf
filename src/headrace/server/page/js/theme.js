// Light, dark, or as the system says; remembered by the browser.

const NAME = "headrace.theme";
export const THEMES = ["system", "light", "dark"];
const listeners = new Set();
const system = matchMedia("(prefers-color-scheme: dark)");

function stored(name, otherwise) {
  try {
    return localStorage.getItem(name) ?? otherwise;
  } catch {
    return otherwise; // storage is switched off
  }
}

export function remember(name, value) {
  try {
    localStorage.setItem(name, value);
  } catch {
    // then it holds for this page only
  }
}

export const recalled = stored;

let chosen = THEMES.includes(stored(NAME)) ? stored(NAME) : "system";

export const theme = () => chosen;
export const isDark = () => chosen === "dark" || (chosen === "system" && system.matches);

export function chooseTheme(name) {
  chosen = name;
  remember(NAME, name);
  show();
}

export const nextTheme = () => chooseTheme(THEMES[(THEMES.indexOf(chosen) + 1) % THEMES.length]);

/** Called when colours change: what is drawn on a canvas must be drawn again. */
export function onTheme(listener) {
  listeners.add(listener);
  return () => listeners.delete(listener);
}

function show() {
  if (chosen === "system") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = chosen;
  for (const listener of listeners) listener();
}

/** A colour of the style sheet, as a canvas takes it. */
export function colour(name) {
  const probe = document.getElementById("probe");
  probe.style.color = `var(--${name})`;
  return getComputedStyle(probe).color;
}

system.addEventListener("change", show);
show();

// The page: which view is shown, what surrounds it, and what is the same for all views.

import { Gone, get, isOutdated, post, remove } from "./api.js";
import { Dialogs } from "./dialogs.js";
import { h, render } from "./dom.js";
import { duration, exact, time } from "./format.js";
import { icon } from "./icons.js";
import { Connection } from "./poll.js";
import { Shortcuts, shortcutList } from "./shortcuts.js";
import { THEMES, chooseTheme, nextTheme, onTheme, theme } from "./theme.js";
import { EventsView } from "./views/all_events.js";
import { JobView } from "./views/job.js";
import { JobsView } from "./views/jobs.js";
import { SignIn } from "./views/sign_in.js";

const ICON = new URL("../favicon.svg", import.meta.url).href; // addresses of files hold a digest
const THEME_WORDS = { system: "as the system", light: "light", dark: "dark" };

class App {
  constructor() {
    Object.assign(this, { server: null, view: null, signIn: null, after: [], drawing: false, notice: null });
    this.connection = new Connection((what) => this.connectionChanged(what));
    this.dialogs = new Dialogs((then) => this.draw(then));
    this.shortcuts = new Shortcuts({
      "?": () => this.showShortcuts(),
      "g j": () => this.go([]),
      "g e": () => this.go(["events"]),
      "/": () => document.querySelector("[data-filter]")?.focus(),
      j: () => this.moveRow(1),
      k: () => this.moveRow(-1),
      "[": () => this.view?.moveTab?.(-1),
      "]": () => this.view?.moveTab?.(1),
      a: () => document.querySelector("[data-actions]")?.click(),
      r: () => this.view?.refresh(),
      t: () => {
        nextTheme();
        this.announce(`Colours: ${THEME_WORDS[theme()]}`);
      },
    });
    onTheme(() => this.draw());
    addEventListener("hashchange", () => this.arrive());
    setInterval(() => this.connection.isLost && this.draw(), 1000); // counts down
  }

  async start() {
    await this.arrive();
  }

  // --- who asks -------------------------------------------------------------------------------

  /** The address has changed: a token in it is used and removed, anything else is a view. */
  async arrive() {
    const token = new URLSearchParams(location.hash.slice(1)).get("token");
    if (token !== null) {
      history.replaceState(null, "", location.pathname + location.search);
      try {
        await post("/session", { token });
        this.server = null;
      } catch (error) {
        return this.askForToken(error);
      }
    }
    if (!this.server && !(await this.meet())) return undefined;
    return this.showView();
  }

  /** Who the server is and what we may do; false if that needs a token. */
  async meet() {
    try {
      this.server = await get("/server");
      this.connection.answered();
      this.signIn = null;
      return true;
    } catch (error) {
      if (error instanceof Gone) {
        setTimeout(() => this.arrive(), this.connection.failed());
        this.draw();
      } else {
        this.askForToken(error.status === 401 ? null : error);
      }
      return false;
    }
  }

  askForToken(error = null) {
    this.leave();
    this.server = null;
    this.signIn = new SignIn(this, error);
    this.draw(() => document.querySelector("#token")?.focus());
  }

  async signedIn() {
    if (await this.meet()) this.showView();
  }

  async signOut() {
    try {
      await remove("/session");
    } finally {
      this.askForToken();
    }
  }

  get mayOperate() {
    return this.server?.role === "operate";
  }

  // --- which view -----------------------------------------------------------------------------

  go(parts) {
    const hash = `#/${parts.map(encodeURIComponent).join("/")}`;
    if (location.hash === hash) this.showView();
    else location.hash = hash;
  }

  showView() {
    const parts = location.hash.replace(/^#\/?/, "").split("/").filter(Boolean).map(decoded);
    const [first, job, tab] = parts;
    if (this.dialogs.open) this.dialogs.close(); // it asked about what was shown
    if (first === "jobs" && job && this.view instanceof JobView && this.view.name === job) {
      this.view.show(tab);
    } else {
      this.leave();
      this.view = first === "jobs" && job ? new JobView(this, job, tab)
        : first === "events" ? new EventsView(this) : new JobsView(this);
      this.view.start();
      scrollTo(0, 0);
    }
    this.draw();
  }

  leave() {
    this.view?.stop();
    this.view = null;
  }

  /** What a view could not load: without a session we ask for the token, else the view says it. */
  refused(error, view) {
    if (error.status === 401) this.askForToken();
    else if (error.status === undefined && !(error instanceof Gone)) console.error(error);
    view.error = error;
    this.draw();
  }

  // --- what is said ---------------------------------------------------------------------------

  connectionChanged(what) {
    if (what === "lost") this.announce("The server does not answer");
    if (what === "back") this.announce("The server answers again");
    this.draw();
  }

  /** Said by screen readers, and shown for a while below. */
  announce(text) {
    document.getElementById("live").textContent = text;
    clearTimeout(this.noticeTimer);
    this.notice = text;
    this.noticeTimer = setTimeout(() => {
      this.notice = null;
      this.draw();
    }, 5000);
    this.draw();
  }

  showShortcuts() {
    this.dialogs.show({ title: "Keys", body: () => shortcutList(this.shortcuts, () => this.draw()) });
  }

  moveRow(by) {
    const links = [...document.querySelectorAll("[data-row]")];
    const at = links.indexOf(document.activeElement);
    links[at < 0 ? (by > 0 ? 0 : links.length - 1) : Math.max(0, Math.min(links.length - 1, at + by))]?.focus();
  }

  // --- drawing --------------------------------------------------------------------------------

  draw(then) {
    if (then) this.after.push(then);
    if (this.drawing) return;
    this.drawing = true;
    requestAnimationFrame(() => {
      this.drawing = false;
      this.drawNow();
    });
  }

  drawNow() {
    const inner = this.signIn ? this.signIn.view() : this.view?.view();
    const title = this.signIn ? "Sign in" : this.view?.title;
    document.title = title ? `${title} · Headrace` : "Headrace";
    render(document.getElementById("app"),
      this.header(), this.banner(),
      h("main", { id: "main", tabindex: "-1" }, inner ?? null),
      h("div", { class: `notice${this.notice ? " shown" : ""}`, "aria-hidden": "true" }, this.notice ?? ""),
      this.dialogs.view());
    for (const call of this.after.splice(0)) call();
  }

  header() {
    const crumbs = this.view?.crumbs ?? [];
    return h("header", { class: "top" },
      h("a", { class: "brand", href: "#/" }, h("img", { src: ICON, alt: "", width: "22", height: "22" }), "Headrace"),
      h("nav", { "aria-label": "Where you are" },
        this.server ? [
          h("a", { href: "#/", "aria-current": crumbs.length === 0 ? "page" : null }, "Jobs"),
          h("a", { href: "#/events", "aria-current": crumbs[0] === "events" ? "page" : null }, "Events"),
        ] : null),
      h("span", { class: "gap" }),
      this.server ? h("span", { class: "role", title: `Headrace ${this.server.version}, since ${exact(this.server.started)}` },
        this.mayOperate ? `v${this.server.version}` : `v${this.server.version} · read only`) : null,
      h("button", {
        type: "button", class: "plain", title: `Colours: ${THEME_WORDS[theme()]} (t)`, "aria-label": `Colours: ${THEME_WORDS[theme()]}. Change.`,
        onclick: () => chooseTheme(THEMES[(THEMES.indexOf(theme()) + 1) % THEMES.length]),
      }, icon(theme())),
      h("button", { type: "button", class: "plain", title: "Keys (?)", "aria-label": "Keys", onclick: () => this.showShortcuts() }, icon("help")),
      this.server ? h("button", { type: "button", class: "plain", title: "Sign out", "aria-label": "Sign out", onclick: () => this.signOut() }, icon("out")) : null);
  }

  banner() {
    const { connection } = this;
    if (!connection.isLost) return isOutdated() ? this.outdated() : null;
    const left = Math.max(0, Math.ceil((connection.nextTry - Date.now()) / 1000));
    const last = connection.lastAnswer ? `What you see is of ${time(connection.lastAnswer)}. ` : "";
    return h("div", { class: "banner", key: "banner" }, icon("warning"),
      h("span", {}, h("strong", {}, "The server does not answer"), ` since ${duration(Date.now() - connection.lostAt)}. `, last,
        "Jobs go on without it. Next try in ", h("span", { class: "fixed" }, `${left} s`), "."),
      h("button", { type: "button", onclick: () => (this.view ? this.view.refresh() : this.arrive()) }, "Try now"));
  }

  /** The server is another version by now, and this page still the one before: it goes on, as far as it can. */
  outdated() {
    return h("div", { class: "banner", key: "outdated", role: "status" }, icon("restart"),
      h("span", {}, h("strong", {}, "The server has another version of this page."), " Reload to see what is new; until then this one goes on."),
      h("button", { type: "button", onclick: () => location.reload() }, "Reload"));
  }
}

function decoded(part) {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
}

new App().start();

// The token of the server, asked for once: a cookie that scripts cannot read stands for it afterwards.

import { post } from "../api.js";
import { h } from "../dom.js";
import { problem } from "../parts.js";

export class SignIn {
  constructor(app, error) {
    Object.assign(this, { app, error, token: "", busy: false });
  }

  async send(event) {
    event.preventDefault();
    Object.assign(this, { busy: true, error: null });
    this.app.draw();
    try {
      await post("/session", { token: this.token.trim() });
      await this.app.signedIn();
    } catch (error) {
      this.error = error;
    }
    this.busy = false;
    this.app.draw();
  }

  view() {
    return h("form", { class: "sign-in panel", onsubmit: (event) => this.send(event) },
      h("h1", {}, "Sign in"),
      h("p", {}, "Paste the token of this server. ", h("code", {}, "headrace server"),
        " prints an address that contains it when it starts; it is also in ", h("code", {}, "tokens.json"), " of the server's home."),
      h("label", { class: "field", for: "token" }, h("span", { class: "label" }, "Token")),
      h("input", {
        id: "token", type: "password", name: "token", autocomplete: "current-password", spellcheck: "false", required: true,
        value: this.token,
        oninput: (event) => {
          this.token = event.target.value;
          this.app.draw();
        },
      }),
      problem(this.error),
      h("button", { type: "submit", class: "main", disabled: this.busy || !this.token.trim() }, this.busy ? "Signing in …" : "Sign in"));
  }
}

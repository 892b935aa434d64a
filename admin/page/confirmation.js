// Every change is confirmed here, and the token asked for if it is not known yet.

import { el, setText, $ } from "./dom.js";
import { Refusal, hasToken, keepToken, sentence } from "./api.js";
import { live } from "./live.js";
import * as panel from "./panel.js";

// There is one error at a time, next to what was refused.
export function showError(parent, text) {
  clearError();
  const node = el("p", { class: "error", role: "alert", data: { field: "error" } }, text);
  parent.append(node);
  return node;
}

export function clearError() {
  for (const old of document.querySelectorAll('[data-field="error"]')) old.remove();
}

// A change that was not answered may be made all the same.
live.addEventListener("state", () => {
  const old = $('[data-field="error"][data-unanswered]');
  if (live.state !== "live" || !old) return;
  old.className = "hint";
  setText(old, "The broker answers again. Look whether the change was made before you confirm it once more.");
});

export function errorText(error) {
  if (error instanceof Refusal) return error.message;
  console.error(error);
  return sentence(`this page failed: ${error.message}`);
}

export function tokenField(which) {
  return el("label", { class: "field token" }, el("span", {}, "Token"),
    el("input", { name: "token", type: "password", autocomplete: "off", spellcheck: "false", required: false, "aria-describedby": "token-hint" }),
    el("small", { id: "token-hint" }, `${which} It stays in this page's memory only.`));
}

// A form with a question, fields, the token if need be, and two buttons.  run() does it; what it returns is given to onDone.
// With stop(), run() may take long: while it runs, the panel stays open with a button that stops it, and leaving the page asks first.
export class Confirmation {
  constructor({ question, label, danger = false, fields = [], dataDirectory = "", check = () => null, run, stop = null, onDone, onDismiss }) {
    Object.assign(this, { label, check, run, stop, onDone, onDismiss, dataDirectory });
    this.tokenPlace = el("div");
    this.errorPlace = el("div", { "aria-live": "assertive" });
    this.confirm = el("button", { type: "submit", class: danger ? "danger" : "primary", data: { action: "confirm" } }, label);
    this.dismiss = el("button", { type: "button", data: { dismiss: "" }, on: { click: () => this.onDismiss() } }, "Not now");
    this.running = el("p", { class: "hint", role: "status" });
    this.node = el("form", { class: "confirmation", novalidate: true, on: { submit: (event) => this.#submit(event) } },
      el("p", { class: "question" }, question), fields, this.tokenPlace, this.errorPlace,
      el("div", { class: "buttons" }, this.confirm, this.dismiss), this.running);
    if (!hasToken()) this.#askForToken();
  }

  // A second Enter alone changes nothing: where nothing is to be typed, the way back has the focus.
  focus() {
    $("input, [data-dismiss]", this.node).focus();
  }

  setLabel(text) {
    this.confirm.textContent = text;
  }

  // Half of a change would be left where somebody takes it for done.  Returns what ends it.
  #hold() {
    const ask = (event) => {
      event.preventDefault();
      event.returnValue = true;  // For older browsers.
    };
    window.addEventListener("beforeunload", ask);
    panel.keepOpen(() => {
      setText(this.running, "This is still running. Stop it, or wait until it has ended.");
      this.dismiss.focus();
    });
    const { onDismiss } = this;
    this.onDismiss = () => {
      setText(this.dismiss, "Stopping…");
      this.stop();
    };
    setText(this.dismiss, "Stop");
    this.dismiss.dataset.action = "stop";
    return () => {
      window.removeEventListener("beforeunload", ask);
      panel.keepOpen(null);
      this.onDismiss = onDismiss;
      setText(this.dismiss, "Not now");
      delete this.dismiss.dataset.action;
      setText(this.running, "");
      this.setLabel(this.label);
    };
  }

  #askForToken() {
    const { dataDirectory: where } = this;
    this.tokenPlace.replaceChildren(tokenField(`The text of ${where ? `${where}/admin.token` : "the file admin.token in the broker's data directory"}.`));
  }

  async #submit(event) {
    event.preventDefault();
    if (this.confirm.disabled) return;
    clearError();
    const wrong = this.check();
    if (wrong) return showError(this.errorPlace, wrong);
    const input = $("input[name=token]", this.tokenPlace);
    if (input) {
      if (!input.value.trim()) {
        showError(this.errorPlace, "Changes need the broker's token: type it above.");
        input.focus();
        return;
      }
      keepToken(input.value.trim());
    }
    this.confirm.disabled = true;
    const end = this.stop ? this.#hold() : () => {};
    try {
      const result = await this.run();
      this.tokenPlace.replaceChildren();
      this.onDone(result);
    } catch (error) {
      // A token that may not do this has been forgotten.
      if (!hasToken()) this.#askForToken();
      else this.tokenPlace.replaceChildren();
      const shown = showError(this.errorPlace, errorText(error));
      if (error.status === 0) shown.dataset.unanswered = "";
      $("input[name=token]", this.tokenPlace)?.focus();
    } finally {
      end();
      this.confirm.disabled = false;
    }
  }
}

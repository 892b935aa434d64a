// Every change is confirmed here, and the token asked for if it is not known yet.

import { el, $ } from "./dom.js";
import { Refusal, hasToken, keepToken, sentence } from "./api.js";

// There is one error at a time, next to what was refused.
export function showError(parent, text) {
  clearError();
  parent.append(el("p", { class: "error", role: "alert", data: { field: "error" } }, text));
}

export function clearError() {
  for (const old of document.querySelectorAll('[data-field="error"]')) old.remove();
}

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
export class Confirmation {
  constructor({ question, label, danger = false, fields = [], dataDirectory = "", check = () => null, run, onDone, onDismiss }) {
    Object.assign(this, { check, run, onDone, dataDirectory });
    this.tokenPlace = el("div");
    this.errorPlace = el("div", { "aria-live": "assertive" });
    this.confirm = el("button", { type: "submit", class: danger ? "danger" : "primary", data: { action: "confirm" } }, label);
    this.node = el("form", { class: "confirmation", novalidate: true, on: { submit: (event) => this.#submit(event) } },
      el("p", { class: "question" }, question), fields, this.tokenPlace, this.errorPlace,
      el("div", { class: "buttons" }, this.confirm, el("button", { type: "button", data: { dismiss: "" }, on: { click: onDismiss } }, "Not now")));
    if (!hasToken()) this.#askForToken();
  }

  // A second Enter alone changes nothing: where nothing is to be typed, the way back has the focus.
  focus() {
    $("input, [data-dismiss]", this.node).focus();
  }

  setLabel(text) {
    this.confirm.textContent = text;
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
    try {
      const result = await this.run();
      this.tokenPlace.replaceChildren();
      this.onDone(result);
    } catch (error) {
      // A token that may not do this has been forgotten.
      if (!hasToken()) this.#askForToken();
      else this.tokenPlace.replaceChildren();
      showError(this.errorPlace, errorText(error));
      $("input[name=token]", this.tokenPlace)?.focus();
    } finally {
      this.confirm.disabled = false;
    }
  }
}

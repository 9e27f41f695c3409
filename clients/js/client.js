// A device's side of a service of Tacit (`tacit serve`), in browsers and Node: reads the policy, acts,
// and sends what came of it, once.
//
//   import { Client } from "./client.js";
//   const device = new Client("https://app.example", token);
//   const policy = await device.policy();             // for one episode; sent only if it changed
//   const action = policy.act(step, "idle");
//   await device.send("ann", states, actions, rewards);
//
// Of a mixed policy `policy` draws the component that the episode follows, and `send` says which.
// Under local DP the report is made here, with exact noise, and only that leaves the device. An
// answer that does not come is asked for again under the same event id: nobody is counted twice.

import { parse } from "./policy.js";
import { readQuestion, report } from "./report.js";

const RETRIED = new Set([408, 429, 503]);

/** What the service answered if it does not do what it was asked to. */
export class Refused extends Error {
  constructor(code, content) {
    super(`${code}: ${content.detail ?? content.words ?? ""}`);
    this.code = code;
    this.content = content;
  }
}

export class Client {
  #address;
  #token;
  #tries;
  #read = null;
  #policy = null; // the same for one episode
  #etag = "";
  #ticket = "";

  constructor(address, token, { tries = 8 } = {}) {
    this.#address = address.replace(/\/+$/, "");
    this.#token = token;
    this.#tries = tries;
  }

  /** The policy that serves now, for one episode; throws if its hash is not that of what it holds. */
  async policy() {
    const answer = await this.#request("/v1/policy", this.#etag ? { "If-None-Match": this.#etag } : {});
    if (answer.status === 200) {
      const read = parse(await answer.text());
      if (!(await read.verify())) throw new Error("the policy was changed on its way");
      this.#read = read;
      this.#etag = answer.headers.get("ETag") ?? "";
    } else if (answer.status !== 304) {
      throw new Refused(answer.status, await content(answer));
    }
    this.#ticket = answer.headers.get("Tacit-Ticket") ?? "";
    this.#policy = this.#read.drawn ? this.#read.drawn(Math.random) : this.#read;
    return this.#policy;
  }

  /** What the service takes: sizes, labels, the guarantee, what is reported. */
  async task() {
    const answer = await this.#request("/v1/task", {});
    const found = await content(answer);
    if (answer.status !== 200) throw new Refused(answer.status, found);
    return found;
  }

  /** An episode under the policy that was read last; the service's receipt. */
  async send(user, states, actions, rewards, { component, event = crypto.randomUUID() } = {}) {
    if (this.#policy === null) throw new Error("read the policy first: an episode says which it followed");
    const version = this.#policy.version;
    component ??= this.#policy.component;
    const about = { user, event, version, ticket: this.#ticket };
    const task = await this.task();
    if (task.model === "local") {
      if (!task.question) throw new Error("this service asks for what only Python can report");
      const episode = { states: coded(task.states, states), actions: coded(task.actions, actions) };
      const sent = report(readQuestion(task.question), { ...episode, rewards, version, component });
      return this.#post("/v1/reports", { ...about, report: sent });
    }
    const drawn = component === undefined ? {} : { component };
    return this.#post("/v1/episodes", { ...about, states, actions, rewards, ...drawn });
  }

  async #post(path, body) {
    const answer = await this.#request(path, { "Content-Type": "application/json" }, JSON.stringify(body));
    const found = await content(answer);
    if (![200, 202].includes(answer.status) && !("status" in found)) {
      throw new Refused(answer.status, found);
    }
    return found;
  }

  // Sends until there is an answer, as often as was said.
  async #request(path, headers, body) {
    const sent = { Authorization: `Bearer ${this.#token}`, ...headers };
    const method = body === undefined ? "GET" : "POST";
    let last = null;
    for (let pause = 50, tries = this.#tries; tries > 0; tries -= 1, pause = Math.min(2 * pause, 2000)) {
      try {
        last = await fetch(this.#address + path, { method, headers: sent, body, cache: "no-store" });
        if (!RETRIED.has(last.status)) return last;
      } catch {
        last = null;
      }
      await new Promise((resolve) => setTimeout(resolve, pause));
    }
    if (last === null) throw new Error(`no answer from ${this.#address} in ${this.#tries} tries`);
    return last;
  }
}

async function content(answer) {
  try {
    const found = await answer.json();
    return found !== null && typeof found === "object" ? found : {};
  } catch {
    return {};
  }
}

// Labels as numbers; what is no label stays, and does not count.
function coded(labels, values) {
  return values.map((x) => (typeof x === "string" && Array.isArray(labels) ? labels.indexOf(x) : x));
}

// A device's side of a service of Tacit (`tacit serve`), in browsers and Node: reads the policy, acts,
// and sends what came of it, once.
//
//   import { Client } from "./client.js";
//   const device = new Client("https://app.example", token); // her own, for a receipt
//   const policy = await device.policy();             // before each episode: it takes a place for it
//   const action = policy.act(step, "idle");
//   await device.send(undefined, states, actions, rewards);  // the token says who she is
//
// Of a mixed policy `policy` draws the component that the episode follows, and `send` says which.
// Under local DP the report is made here, with exact noise, and only that leaves the device. An
// answer that does not come is asked for again under the same event id: nobody is counted twice.

import { parse } from "./policy.js";
import { readQuestion, report } from "./report.js";

const RETRIED = new Set([408, 429, 503]);
const UNASKED = "not sent: there was no place for an episode when the policy was read";

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
  #keys;
  #read = null;
  #policy = null; // the same for one episode
  #etag = "";
  #ticket = "";
  #spent = true;
  #until = 0;
  #made = ["", []]; // event of the last report, and the report

  /** With `keys`, public keys in hex, every policy must be signed by one of them. */
  constructor(address, token, { tries = 8, keys = null } = {}) {
    this.#keys = keys;
    this.#address = address.replace(/\/+$/, "");
    this.#token = token;
    this.#tries = tries;
  }

  /**
   * The policy that serves now; throws if its hash is not that of what it holds. It takes a place in
   * a block for the episode that is sent next; an unused place is kept, while it is fresh.
   */
  async policy() {
    const wanted = this.#spent || Date.now() > this.#until;
    const path = `/v1/policy?place=${wanted ? 1 : 0}`;
    const answer = await this.#request(path, this.#etag ? { "If-None-Match": this.#etag } : {});
    if (answer.status === 200) {
      const read = parse(await answer.text());
      if (!(await read.verify())) throw new Error("the policy was changed on its way");
      if (this.#keys && !(await read.signer(this.#keys))) throw new Error("the policy is signed by nobody who is trusted");
      this.#read = read;
      this.#etag = answer.headers.get("ETag") ?? "";
    } else if (answer.status !== 304) {
      throw new Refused(answer.status, await content(answer));
    }
    if (answer.status === 200 || wanted) {
      this.#ticket = answer.headers.get("Tacit-Ticket") ?? "";
      this.#spent = this.#ticket === "";
      // Of an old ticket too little of the window is left for another episode.
      this.#until = Date.now() + 500 * Number(answer.headers.get("Tacit-Window"));
    }
    this.#policy = this.#read.drawn ? this.#read.drawn(Math.random) : this.#read;
    return this.#policy;
  }

  /** What the service takes: sizes, labels, the guarantee, what is reported. */
  async task() {
    const version = this.#policy === null ? -1 : this.#policy.version;
    const answer = await this.#request(`/v1/task?version=${version}`, {});
    const found = await content(answer);
    if (answer.status !== 200) throw new Refused(answer.status, found);
    return found;
  }

  /** An episode under the policy that was read last; the service's receipt. */
  async send(user, states, actions, rewards, { component, event = crypto.randomUUID() } = {}) {
    if (this.#policy === null) throw new Error("read the policy first: an episode says which it followed");
    const version = this.#policy.version;
    component ??= this.#policy.component;
    if (this.#ticket === "") return { status: "unasked", accepted: false, words: UNASKED };
    const about = { user, event, ticket: this.#ticket };
    this.#spent = true;
    const task = await this.task();
    if (task.model === "local") {
      if (!task.question) throw new Error("this service asks for what only Python can report");
      const episode = { states: coded(task.states, states), actions: coded(task.actions, actions) };
      if (this.#made[0] !== event) { // sent again, it has the same noise
        const given = { ...episode, rewards, version, component };
        this.#made = [event, report(readQuestion(task.question), given)];
      }
      return this.#post("/v1/reports", { ...about, report: this.#made[1] });
    }
    const drawn = component === undefined ? {} : { component };
    return this.#post("/v1/episodes", { ...about, states, actions, rewards, ...drawn });
  }

  /** An action under that policy, whose reward comes later: step, state, action, perhaps probability. */
  async decide(event, values) {
    if (this.#policy === null) throw new Error("read the policy first: a decision says which it followed");
    if (this.#ticket === "") return { status: "unasked", accepted: false, words: UNASKED };
    this.#spent = true;
    const { component } = this.#policy;
    const drawn = component === undefined ? {} : { component };
    return this.#post("/v1/decisions", { ...drawn, ...values, event, ticket: this.#ticket });
  }

  /** The reward of a step, whenever it is known, perhaps with next_state. */
  outcome(event, values) {
    return this.#post("/v1/outcomes", { ...values, event });
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

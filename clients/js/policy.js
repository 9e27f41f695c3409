// Reads published policies of Tacit in their JSON form, without dependencies, in browsers and Node.
//
//   import { parse } from "./policy.js";
//   const policy = parse(text);               // what agent.publish("policy.json") wrote
//   policy.act(step, "idle");                 // or a number, or a vector of numbers
//   await policy.verify();                    // whether the hash is that of what the file holds
//   await policy.signer(keys);                // by which of these public keys (hex) it is signed; "" if by none
//
// A policy that draws takes a function like Math.random as its last argument. Of a mixed policy every
// episode follows one component, and says which:
//
//   const mine = policy.drawn(Math.random);   // once per episode
//   mine.act(step, "idle", Math.random);      // mine.component is part of the episode

/** A policy of any kind from the text of its file; throws an Error that says what is wrong. */
export function parse(text) {
  const held = JSON.parse(text);
  if (held === null || held.tacit !== "policy") throw new Error("this is no published policy");
  const arrays = held.arrays;
  for (const [name, { dtype, shape, data }] of Object.entries(arrays)) {
    const size = shape.reduce((a, b) => a * b, 1);
    const type = dtype === "text" ? "string" : "number";
    if (size !== data.length || data.some((x) => typeof x !== type)) {
      throw new Error(`${name} does not fit its shape or type`);
    }
  }
  const format = number(arrays, "format");
  if (format !== 1) throw new Error(`its format is ${format}; this reader reads 1`);
  const kind = arrays.kind ? arrays.kind.data[0] : "table";
  const make = { table: table, mixed: mixed, gains: gains, q: values, trial }[kind];
  if (!make) throw new Error(`its kind is ${kind}; this reader does not know it`);
  const policy = make(arrays, kind);
  policy.kind = kind;
  policy.version = number(arrays, "version");
  policy.about = arrays.about ? JSON.parse(arrays.about.data[0]) : {};
  policy.hash = arrays.hash ? arrays.hash.data[0] : null;
  policy.verify = async () => policy.hash !== null && (await digest(arrays)) === policy.hash;
  policy.signer = (keys) => signer(policy, arrays.signatures?.data ?? [], keys);
  return policy;
}

function number(arrays, name) {
  if (!arrays[name]) throw new Error(`${name} is missing`);
  return arrays[name].data[0];
}

function inside(name, value, size) {
  if (!Number.isInteger(value) || value < 0 || value >= size) {
    throw new Error(`${name} must be in 0..${size - 1}, got ${value}`);
  }
}

function drawing(random) {
  if (typeof random !== "function") throw new Error("this policy draws: give random, Math.random");
  return random();
}

// An index with the probabilities of a row; what has probability zero is never drawn.
function draw(row, random) {
  const u = drawing(random);
  let sum = 0;
  let last = 0;
  for (let i = 0; i < row.length; i += 1) {
    if (row[i] === 0) continue;
    last = i;
    sum += row[i];
    if (u < sum) return i;
  }
  return last;
}

// Tables of finite worlds, by number or by label.
function table(arrays, _kind, component = 0) {
  const { actions, probabilities } = arrays;
  const stored = actions ?? probabilities;
  const shape = stored.shape.slice(actions ? -2 : -3);
  const [horizon, states] = shape;
  const count = number(arrays, "n_actions");
  const start = component * shape.reduce((a, b) => a * b, 1);
  const stateLabels = arrays.state_labels?.data ?? null;
  const actionLabels = arrays.action_labels?.data ?? null;
  return {
    stateLabels,
    actionLabels,
    act(step, state, random) {
      const named = typeof state === "string";
      const code = named ? (stateLabels ?? []).indexOf(state) : state;
      if (named && code < 0) throw new Error(`state must be a label, got ${state}`);
      inside("step", step, horizon);
      inside("state", code, states);
      const at = step * states + code;
      const action = actions
        ? actions.data[start + at]
        : draw(probabilities.data.slice(start + at * count, start + (at + 1) * count), random);
      return named && actionLabels ? actionLabels[action] : action;
    },
  };
}

// Several tables, of which a user follows one.
function mixed(arrays) {
  const count = (arrays.actions ?? arrays.probabilities).shape[0];
  const components = Array.from({ length: count }, (_, i) => table(arrays, "table", i));
  const weights = arrays.weights.data;
  return {
    components,
    weights,
    draw: (random) => draw(weights, random),
    drawn(random) {
      return { ...this, component: draw(weights, random) };
    },
    act(step, state, random, component = this.component) {
      inside("component", component, count);
      return components[component].act(step, state, random);
    },
  };
}

// Control: u = gains[step] x, and random signs times noise.
function gains(arrays) {
  const [horizon, controls, states] = arrays.gains.shape;
  const noise = number(arrays, "noise");
  return {
    act(step, state, random) {
      inside("step", step, horizon);
      if (state.length !== states) throw new Error(`state must be a vector of ${states} numbers`);
      return Array.from({ length: controls }, (_, i) => {
        const start = (step * controls + i) * states;
        let sum = 0;
        for (let j = 0; j < states; j += 1) sum += arrays.gains.data[start + j] * state[j];
        return noise > 0 ? sum + noise * (2 * Math.floor(2 * drawing(random)) - 1) : sum;
      });
    },
  };
}

// Chances of actions in a trial: of being the best, in a declared range. A person's own history, kept
// on her device, is further evidence; it goes on whichever policy comes next.
function trial(arrays) {
  const [mean, count] = [arrays.mean.data, number(arrays, "n_actions")];
  const columns = count === 2 ? 1 : count;
  const [size, d] = [mean.length, mean.length / columns];
  const [low, own] = [number(arrays, "low"), number(arrays, "own")];
  const covariance = rowsOf(arrays.covariance.data, size);
  const rows = (f) =>
    Array.from({ length: columns }, (_, c) =>
      mean.map((_, i) => {
        const against = columns === 1 ? 1 : (Math.floor(i / d) === c) - 1 / columns;
        return against * (Number.isFinite(f[i % d]) ? f[i % d] : 0);
      }),
    );
  const policy = {
    history: () => ({
      score: mean.map(() => 0),
      information: covariance.map((row) => row.map(() => 0)),
      total: 0,
      squares: 0,
      count: 0,
    }),
    // Adds a decision of this person to her history.
    add(history, f, action, chances, reward) {
      if (!Number.isFinite(reward) || !f.every(Number.isFinite)) return;
      const base = (5 * number(arrays, "usual") + history.total) / (5 + history.count);
      const p = columns === 1 ? [chances[1]] : chances;
      const gain = reward - base;
      for (let i = 0; i < size; i += 1) {
        const [a, x] = [Math.floor(i / d), f[i % d]];
        const taken = columns === 1 ? action : Number(action === a);
        history.score[i] += (taken - p[a]) * gain * x;
        for (let j = 0; j < size; j += 1) {
          const b = Math.floor(j / d);
          history.information[i][j] += ((a === b ? p[a] : 0) - p[a] * p[b]) * x * f[j % d];
        }
      }
      history.total += reward;
      history.squares += gain * gain;
      history.count += 1;
    },
    // Chances of all actions at a decision with these features.
    chances(f, history = null) {
      if (f.length !== d) throw new Error(`features must be a vector of ${d} numbers`);
      let [center, spread] = [mean, covariance];
      if (history && own > 0) {
        const wide = covariance.map((row, i) => row.map((x, j) => x + (i === j ? own * own : 0)));
        const prior = inverse(wide);
        const sd = Math.sqrt(history.squares / Math.max(history.count, 1));
        const known = history.count >= 5 && sd > 0;
        const towards = times(prior, mean).map((x, i) => x + (known ? history.score[i] / sd : 0));
        const both = (row, i) => row.map((x, j) => x + (known ? history.information[i][j] : 0));
        spread = inverse(prior.map(both));
        center = times(spread, towards);
      }
      const z = rows(f).map((row) => {
        const width = dot(row, times(spread, row));
        return dot(row, center) / Math.sqrt(Math.max(width, 1e-300));
      });
      if (number(arrays, "greedy")) {
        const best = columns === 1 ? Number(z[0] > 0) : z.indexOf(Math.max(...z));
        return Array.from({ length: count }, (_, a) => Number(a === best));
      }
      if (columns === 1) {
        const p = Math.min(1 - low, Math.max(low, normal(z[0])));
        return [1 - p, p];
      }
      const weights = z.map((x) => Math.exp(1.7 * (x - Math.max(...z))));
      const sum = weights.reduce((a, b) => a + b, 0);
      return weights.map((x) => low + ((1 - count * low) * x) / sum);
    },
    // The action of a decision; its chance is `chances(f, history)[action]`, and part of the episode.
    act: (_step, f, random, history) => draw(policy.chances(f, history), random),
  };
  return policy;
}

const rowsOf = (data, size) =>
  Array.from({ length: size }, (_, i) => data.slice(i * size, (i + 1) * size));
const dot = (x, y) => x.reduce((sum, value, i) => sum + value * y[i], 0);
const times = (matrix, x) => matrix.map((row) => dot(row, x));

// The inverse of a positive definite matrix, by Gauss and Jordan.
function inverse(matrix) {
  const n = matrix.length;
  const wide = matrix.map((row, i) => [...row, ...row.map((_, j) => Number(i === j))]);
  for (let i = 0; i < n; i += 1) {
    const pivot = wide[i][i];
    wide[i] = wide[i].map((x) => x / pivot);
    for (let k = 0; k < n; k += 1) {
      const factor = wide[k][i];
      if (k !== i && factor !== 0) wide[k] = wide[k].map((x, j) => x - factor * wide[i][j]);
    }
  }
  return wide.map((row) => row.slice(n));
}

// The normal distribution function: a series near zero, a continued fraction far from it.
function normal(x) {
  const density = Math.exp((-x * x) / 2) / Math.sqrt(2 * Math.PI);
  if (Math.abs(x) < 3) {
    let [term, sum] = [x, x];
    for (let k = 1; k < 80; k += 1) sum += term *= (x * x) / (2 * k + 1);
    return 0.5 + density * sum;
  }
  let tail = 0;
  for (let k = 60; k > 0; k -= 1) tail = k / (Math.abs(x) + tail);
  tail = density / (Math.abs(x) + tail);
  return x > 0 ? 1 - tail : tail;
}

// Values of actions, linear on features.
function values(arrays) {
  const epsilon = number(arrays, "epsilon");
  const preference = arrays.preference.data;
  const of = (x) => linear(x, arrays);
  return {
    values: of,
    act(_step, state, random) {
      if (epsilon > 0 && drawing(random) < epsilon) {
        return Math.floor(drawing(random) * preference.length);
      }
      const found = of(state);
      return preference.reduce((best, action) => (found[action] > found[best] ? action : best));
    },
  };
}

function linear(state, arrays) {
  const [actions, size] = arrays.weights.shape;
  const phi = features(state, arrays);
  return Array.from({ length: actions }, (_, a) => {
    let sum = 0;
    for (let i = 0; i < size; i += 1) sum += arrays.weights.data[a * size + i] * phi[i];
    return sum;
  });
}

// Monomials of a state, or products of hats along its coordinates.
function features(state, arrays) {
  const kind = arrays.features.data[0];
  const corner = (kind === "polynomial" ? arrays.scales : arrays.lows).data;
  if (state.length !== corner.length) {
    throw new Error(`state must be a vector of ${corner.length} numbers`);
  }
  let found = [1];
  if (kind === "polynomial") {
    const clip = number(arrays, "clip");
    const z = state.map((x, i) => Math.min(clip, Math.max(-clip, x / corner[i])));
    found = monomials(z, number(arrays, "degree"));
  } else {
    state.forEach((raw, i) => {
      const [low, high] = [arrays.lows.data[i], arrays.highs.data[i]];
      const x = (Math.min(high, Math.max(low, raw)) - low) / (high - low);
      const points = arrays.shape.data[i];
      const along = Array.from({ length: points }, (_, k) =>
        Math.max(0, 1 - Math.abs(x * (points - 1) - k)),
      );
      found = found.flatMap((value) => along.map((factor) => value * factor));
    });
  }
  return state.every(Number.isFinite) ? found : found.map(() => 0);
}

// All products of up to `degree` coordinates, those of fewer factors first, in the order of indices.
function monomials(z, degree) {
  const found = [1];
  let last = z.map((x, i) => [x, i]);
  for (let k = 1; k <= degree; k += 1) {
    found.push(...last.map(([x]) => x));
    last = last.flatMap(([x, i]) => z.slice(i).map((y, j) => [x * y, i + j]));
  }
  return found;
}

/** The public key of Ed25519, one of those that are trusted, by which a policy is signed; "" if none. */
async function signer(policy, signatures, keys) {
  if (!(await policy.verify())) return "";
  const text = new TextEncoder().encode(`tacit policy ${policy.hash}`);
  const subtle = globalThis.crypto.subtle;
  for (const mark of signatures) {
    const [key, signature] = mark.split(":");
    if (!keys.includes(key) || !/^[0-9a-f]{128}$/.test(signature ?? "")) continue;
    const trusted = await subtle.importKey("raw", bytes(key), { name: "Ed25519" }, false, ["verify"]);
    if (await subtle.verify({ name: "Ed25519" }, trusted, bytes(signature), text)) return key;
  }
  return "";
}

function bytes(hex) {
  return Uint8Array.from(hex.match(/../g), (pair) => parseInt(pair, 16));
}

/** The SHA-256 of all arrays but the hash and signatures, as tacit/published.py defines it. */
async function digest(arrays) {
  const parts = [];
  const encoder = new TextEncoder();
  const names = Object.keys(arrays).filter((name) => name !== "hash" && name !== "signatures");
  for (const name of names.sort((a, b) => (a < b ? -1 : 1))) {
    const { dtype, shape, data } = arrays[name];
    const kind = { int: "i", float: "f", text: "u" }[dtype];
    parts.push(encoder.encode(`${name}\0${kind}\0${shape.join(",")}\0`));
    if (kind === "u") {
      parts.push(encoder.encode(data.join("\0")));
    } else {
      const view = new DataView(new ArrayBuffer(8 * data.length));
      data.forEach((x, i) => {
        if (kind === "f") view.setFloat64(8 * i, x, true);
        else view.setBigInt64(8 * i, BigInt(x), true);
      });
      parts.push(new Uint8Array(view.buffer));
    }
  }
  const whole = new Uint8Array(parts.reduce((n, part) => n + part.length, 0));
  let at = 0;
  for (const part of parts) {
    whole.set(part, at);
    at += part.length;
  }
  const found = await globalThis.crypto.subtle.digest("SHA-256", whole);
  return Array.from(new Uint8Array(found), (b) => b.toString(16).padStart(2, "0")).join("");
}

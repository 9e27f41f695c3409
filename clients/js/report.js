// Reports of local differential privacy, made in a browser or under Node: the episode stays here,
// and one noisy vector leaves.
//
//   import { readQuestion, report } from "./report.js";
//   const question = readQuestion(text);      // what tacit.tabular.question.question wrote
//   const sent = report(question, { states, actions, rewards, version });
//
// `states` has a state more than `actions` and `rewards`: the one after the last step. What is not
// valid does not count and never throws: an error would tell something about the user. Noise is
// exact and from the machine's own generator (noise.js). Send a report once, and nothing else.

import { laplace, normal, systemBytes } from "./noise.js";

const ADDITIONS = 2 ** 17;

/** A question from its JSON; throws if its noise does not keep what its budget promises. */
export function readQuestion(text) {
  const asked = JSON.parse(text);
  if (asked === null || asked.tacit !== "question") throw new Error("this is no question");
  if (asked.format !== 1) throw new Error(`its format is ${asked.format}; this reader reads 1`);
  if (asked.statistic !== "visit counts") throw new Error(`it asks for ${asked.statistic}`);
  for (const name of ["states", "actions", "horizon", "episodes_per_user"]) {
    if (!Number.isInteger(asked[name]) || asked[name] < 1) throw new Error(`${name} is wrong`);
  }
  for (const name of ["weight", "epsilon", "step", "scale"]) {
    if (!(Number.isFinite(asked[name]) && asked[name] > 0)) throw new Error(`${name} is wrong`);
  }
  if (asked.cap !== null && !(asked.pooled && Number.isInteger(asked.cap) && asked.cap >= 1)) {
    throw new Error("cap is wrong");
  }
  if (Math.log2(asked.step) % 1 !== 0) throw new Error("step is no power of two");
  if (!["gaussian", "laplace"].includes(asked.mechanism)) throw new Error("mechanism is wrong");
  const question = { ...asked, ...cellsOf(asked) };
  checkNoise(question);
  return Object.freeze(question);
}

/** One user's report. `bytes` is for tests. Throws if an episode under a mixed policy has no component. */
export function report(question, episode, bytes = systemBytes) {
  if (question.policy !== null && Array.isArray(question.policy[0][0]) && episode.component === undefined) {
    throw new Error("the policy is mixed: give the component that the episode followed");
  }
  const steps = counted(question, episode).map((x) => BigInt(evenRound(x / question.step)));
  const draw = question.mechanism === "laplace" ? laplace : normal;
  const noise = draw(question.scale, steps.length, bytes);
  return steps.map((x, i) => question.step * Number(x + noise[i]));
}

// The cell of every step, state and action, -1 where it is dropped, and how many cells there are.
function cellsOf({ states, actions, horizon, pooled, policy }) {
  const tables = policy === null ? null : Array.isArray(policy[0][0]) ? policy : [policy];
  const taken = (h, s, a) => tables === null || tables.some((table) => table[h][s] === a);
  const cells = [];
  let size = 0;
  if (pooled) {
    const numbers = [];
    for (let s = 0; s < states; s += 1) {
      for (let a = 0; a < actions; a += 1) {
        let some = false;
        for (let h = 0; h < horizon; h += 1) some ||= taken(h, s, a);
        numbers.push(some ? size : -1);
        size += some ? 1 : 0;
      }
    }
    for (let h = 0; h < horizon; h += 1) {
      numbers.forEach((number, i) => {
        const s = Math.floor(i / actions);
        cells.push(taken(h, s, i % actions) ? number : -1);
      });
    }
    return { cells, size, tables };
  }
  for (let h = 0; h < horizon; h += 1) {
    for (let s = 0; s < states; s += 1) {
      for (let a = 0; a < actions; a += 1) {
        cells.push(taken(h, s, a) ? size : -1);
        size += taken(h, s, a) ? 1 : 0;
      }
    }
  }
  return { cells, size, tables };
}

// The user's vector: transitions by cell, and weighted rewards.
function counted(question, episode) {
  const { states, actions, horizon, cells, size, tables, weight } = question;
  const out = new Array(size * states + size).fill(0);
  const sums = new Array(size).fill(0);
  const seen = new Array(size).fill(0);
  const cap = question.pooled && question.cap !== null ? question.cap : horizon;
  const at = (list, i) => (list === undefined || list === null ? undefined : list[i]);
  let table = null;
  if (tables !== null) {
    const mixed = Array.isArray(question.policy[0][0]);
    table = mixed ? tables[within(episode.component, tables.length) ? episode.component : -1] : tables[0];
    if (episode.version !== question.version || table === undefined) return out;
  }
  for (let h = 0; h < horizon; h += 1) {
    const state = at(episode.states, h);
    const action = at(episode.actions, h);
    const reward = at(episode.rewards, h);
    let after = at(episode.states, h + 1);
    // What follows a last step that has cells of its own makes no difference.
    if (h === horizon - 1 && (h === 0 || !question.pooled) && !within(after, states)) after = 0;
    if (!within(state, states) || !within(after, states) || !within(action, actions)) continue;
    if (typeof reward !== "number" || !Number.isFinite(reward)) continue;
    if (table !== null && table[h][state] !== action) continue;
    const cell = cells[(h * states + state) * actions + action];
    if (cell < 0 || seen[cell] >= cap) continue;
    seen[cell] += 1;
    out[cell * states + after] += 1;
    sums[cell] += Math.min(Math.max(reward, 0), 1);
  }
  sums.forEach((sum, cell) => {
    out[size * states + cell] = weight * sum;
  });
  return out;
}

function within(value, size) {
  return Number.isInteger(value) && value >= 0 && value < size;
}

// To the nearest whole number, halves to the even one, as NumPy rounds.
function evenRound(x) {
  const down = Math.floor(x);
  if (x - down !== 0.5) return Math.round(x);
  return down % 2 === 0 ? down : down + 1;
}

// The largest sum of n^power when so many steps fall into cells; see VisitCounts in Python.
function most({ pooled, horizon, cap, size }, steps, power) {
  if (!pooled) return steps;
  const each = Math.min(horizon, cap ?? horizon);
  const full = Math.floor(steps / each);
  if (full >= size) return size * each ** power;
  return full * each ** power + (steps - full * each) ** power;
}

/** The distance of two users' vectors at most, in the norm that the noise hides. */
export function sensitivity(question, replace = true) {
  const power = question.mechanism === "laplace" ? 1 : 2;
  const extra = question.weight ** power;
  const once = most(question, question.horizon, power);
  const twice = most(question, 2 * question.horizon, power);
  const square = replace ? 2 * once + extra * twice : (1 + extra) * once;
  return power === 1 ? square : Math.sqrt(square);
}

function checkNoise(question) {
  const { size, states, mechanism, step, scale, epsilon, delta } = question;
  const numbers = size * states + size;
  const spread = mechanism === "laplace" ? numbers : Math.sqrt(numbers);
  const summing = 2 * ADDITIONS ** 2 * 2 ** -53;
  const apart = sensitivity(question) + summing * sensitivity(question, false);
  const cost = (apart / step + spread) / scale;
  const g = question.episodes_per_user;
  const kept =
    mechanism === "laplace"
      ? g * cost <= epsilon * (1 + 1e-9)
      : deltaOf(Math.sqrt(g) * cost, epsilon) <= delta * (1 + 1e-6);
  if (!kept) throw new Error("this question asks for less noise than its budget promises");
}

/** The delta of Gaussian noise with which two users are mu standard deviations apart. */
export function deltaOf(mu, epsilon) {
  const x = epsilon / mu - mu / 2;
  const y = epsilon / mu + mu / 2;
  // Phi(-x) - e^epsilon Phi(-y) = density(x) (R(x) - R(y)), R the ratio of tail and density.
  const density = Math.exp((-x * x) / 2) / Math.sqrt(2 * Math.PI);
  if (x < -6) return 1;
  if (mu >= 0.5) return density * (mills(x) - mills(y));
  // R(x) - R(y) is the integral of 1 - t R(t), by 64 midpoints: nothing cancels.
  let sum = 0;
  for (let i = 0; i < 64; i += 1) {
    const t = x + (mu * (i + 0.5)) / 64;
    sum += 1 - t * mills(t);
  }
  return (density * mu * sum) / 64;
}

// The tail of the normal distribution over its density at t.
function mills(t) {
  if (t < 3) {
    // Phi(t) by its series, which has positive terms only for t > 0.
    let term = t;
    let sum = t;
    for (let n = 1; Math.abs(term) > 1e-18 * Math.abs(sum) && n < 500; n += 1) {
      term *= (t * t) / (2 * n + 1);
      sum += term;
    }
    return Math.sqrt(Math.PI / 2) * Math.exp((t * t) / 2) - sum;
  }
  // Laplace's continued fraction, from far inside.
  let value = t;
  for (let n = 200; n >= 1; n -= 1) value = t + n / value;
  return 1 / value;
}

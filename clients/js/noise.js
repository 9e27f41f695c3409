// Exact noise in whole numbers, for reports of local differential privacy: round(s Z) with Z
// standard normal and round(s L) with L Laplace of scale 1, for any scale s, every probability to
// the last digit. It is the algorithm of tacit.privacy.deviates, which has the proof, in BigInts:
// the same bytes give the same numbers there and here.
//
//   import { normal, laplace } from "./noise.js";
//   normal(1000, 3);                          // three numbers, from crypto.getRandomValues
//
// A point uniform below a curve is found by rejection, cell by cell. Whatever the digits so far do
// not decide draws more digits: a tie is extended, never broken. There is no floating point here but
// the scale, which is read as the whole number times a power of two that it is.

const CELLS = 64n;

/** Random bytes of the machine; what noise is made of unless a test brings its own. */
export function systemBytes(count) {
  const out = new Uint8Array(count);
  for (let start = 0; start < count; start += 65536) {
    globalThis.crypto.getRandomValues(out.subarray(start, Math.min(count, start + 65536)));
  }
  return out;
}

/** `count` independent round(scale Z), as BigInts. */
export function normal(scale, count, bytes = systemBytes) {
  return drawn(curve(true), scale, count, bytes);
}

/** `count` independent round(scale L), as BigInts. */
export function laplace(scale, count, bytes = systemBytes) {
  return drawn(curve(false), scale, count, bytes);
}

function drawn(cells, scale, count, bytes) {
  const factor = wholeScale(scale);
  const out = [];
  while (out.length < count) {
    const [first, second] = words(bytes);
    const settled = settle(cells, factor, first, second, bytes);
    if (settled !== null) out.push(settled);
  }
  return out;
}

function words(bytes) {
  const drawn = bytes(16);
  return [little(drawn.subarray(0, 8)), little(drawn.subarray(8, 16))];
}

function little(bytes) {
  let value = 0n;
  for (let i = bytes.length - 1; i >= 0; i -= 1) value = (value << 8n) | BigInt(bytes[i]);
  return value;
}

function big(bytes) {
  let value = 0n;
  for (const byte of bytes) value = (value << 8n) | BigInt(byte);
  return value;
}

// Numbers m / 2^e, with whole m and e: everything below is one of these.

const dyadic = (m, e) => ({ m, e });
const plus = (a, b) =>
  a.e >= b.e ? dyadic(a.m + (b.m << (a.e - b.e)), a.e) : dyadic(b.m + (a.m << (b.e - a.e)), b.e);
const times = (a, b) => dyadic(a.m * b.m, a.e + b.e);
const ONE_HALF = dyadic(1n, 1n);

function floor(a) {
  return a.m >> a.e;
}

function wholeScale(scale) {
  if (!(scale >= 2 ** -16 && scale <= 2 ** 51)) {
    throw new Error(`exact noise has a scale from 2^-16 to 2^51 steps, got ${scale}`);
  }
  let e = 0n;
  let m = scale;
  while (!Number.isInteger(m)) {
    m *= 2;
    e += 1n;
  }
  return dyadic(BigInt(m), e);
}

// 2^places times e^-x, a few units in the last place off: by (e^(-x / 2^k))^(2^k) and a series.
function exponential(x, places) {
  const k = BigInt((x.m >> x.e).toString(2).length + 8);
  const work = places + 64n;
  const precise = work + k;
  // x / 2^k, with so many places.
  const z = work >= x.e ? x.m << (work - x.e) : x.m >> (x.e - work);
  let term = 1n << precise;
  let sum = term;
  for (let n = 1n; term !== 0n; n += 1n) {
    term = -((term * z) >> precise) / n;
    sum += term;
  }
  for (let i = 0n; i < k; i += 1n) sum = (sum * sum) >> precise;
  return sum >> (precise - places);
}

function exponent(squared, x) {
  return squared ? times(times(x, x), ONE_HALF) : x;
}

const made = new Map();

function curve(squared) {
  if (made.has(squared)) return made.get(squared);
  const end = squared ? 8n : 44n;
  const most = squared ? 81n : 65n;
  const peak = (1n << 64n) / most - 4n * CELLS * end;
  const values = [];
  for (let i = 0n; i <= CELLS * end; i += 1n) {
    const places = 256n;
    values.push((peak * exponential(exponent(squared, dyadic(i, 6n)), places)) >> places);
  }
  const tail = squared ? CELLS / end : CELLS;
  const heights = values.slice(0, -1).map((value) => value + 2n);
  heights.push(tail * (values[values.length - 1] + 2n));
  const sure = values.slice(1).map((value) => (value > 1n ? value - 1n : 0n));
  const edges = [0n];
  for (const height of heights) edges.push(edges[edges.length - 1] + height);
  const found = { squared, end, peak, tail, edges, sure };
  made.set(squared, found);
  return found;
}

// A uniform number in [origin, origin + unit); its digits are drawn when they are needed.
class Point {
  constructor(bytes, origin, unit, value = 0n, count = 0n) {
    Object.assign(this, { bytes, origin, unit, value, count });
  }

  get low() {
    return plus(this.origin, times(this.unit, dyadic(this.value, this.count)));
  }

  get high() {
    return plus(this.origin, times(this.unit, dyadic(this.value + 1n, this.count)));
  }

  extend() {
    this.value = (this.value << 64n) | big(this.bytes(8));
    this.count += 64n;
  }

  // `by` plus the number over 2^shift.
  moved(by, shift = 0n) {
    const part = (a) => dyadic(a.m, a.e + shift);
    const origin = plus(dyadic(by, 0n), part(this.origin));
    return new Point(this.bytes, origin, part(this.unit), this.value, this.count);
  }
}

function settle(cells, factor, first, second, bytes) {
  const point = pointBelow(cells, first, second, bytes);
  if (point === null) return null;
  for (;;) {
    const steps = floor(plus(times(factor, point.low), ONE_HALF));
    const high = plus(times(factor, point.high), ONE_HALF);
    if (high.m <= (steps + 1n) << high.e) return second >> 63n ? -steps : steps;
    point.extend();
  }
}

function pointBelow(cells, first, second, bytes) {
  let low = 0;
  let high = cells.edges.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (first < cells.edges[middle]) high = middle;
    else low = middle + 1;
  }
  const cell = low - 1;
  const last = Number(CELLS * cells.end);
  if (cell > last) return null;
  const above = first - cells.edges[cell];
  if (cell === last) return pointBeyond(cells, above, bytes);
  const origin = dyadic(BigInt(cell), 6n);
  const digits = second & ((1n << 63n) - 1n);
  const point = new Point(bytes, origin, dyadic(1n, 6n), digits, 63n);
  const below = (x) => exponent(cells.squared, x);
  if (above < cells.sure[cell] || under(above, cells.peak, below, point, bytes)) return point;
  return null;
}

function pointBeyond(cells, above, bytes) {
  const here = new Point(bytes, dyadic(cells.end, 0n), dyadic(0n, 0n));
  const below = (x) => exponent(cells.squared, x);
  if (!under(above, cells.tail * cells.peak, below, here, bytes)) return null;
  let further = null;
  while (further === null) further = pointBelow(curve(false), ...words(bytes), bytes);
  if (!cells.squared) return further.moved(cells.end);
  // The end is 8: x / 8 is three binary places down, and (x / 8)^2 / 2 is seven.
  const kept = (x) => dyadic(x.m * x.m, 2n * x.e + 7n);
  return under(0n, 1n, kept, further, bytes) ? further.moved(cells.end, 3n) : null;
}

// Whether a height in [above, above + 1) is below area * exp(-power(point)).
function under(above, area, power, point, bytes) {
  const height = new Point(bytes, dyadic(above, 0n), dyadic(1n, 0n));
  for (let places = 40; ; places += 20) {
    const slack = 10n ** BigInt(places - 6);
    const bits = BigInt(4 * places + 320);
    const low = area * exponential(power(point.high), bits) * (slack - 1n);
    const { m: top, e: topPlaces } = height.high;
    if (top * slack << bits <= low << topPlaces) return true;
    const high = area * exponential(power(point.low), bits) * (slack + 1n);
    const { m: bottom, e: bottomPlaces } = height.low;
    if (bottom * slack << bits >= high << bottomPlaces) return false;
    height.extend();
    point.extend();
  }
}

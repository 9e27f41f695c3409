// Reads {"squared", "scale", "count", "bytes"} cases from standard input and prints the numbers that
// noise.js makes of these bytes, and how many bytes it took; see tests/test_client_noise.py.

import { laplace, normal } from "./noise.js";

let text = "";
for await (const chunk of process.stdin) text += chunk;
const answers = JSON.parse(text).map(({ squared, scale, count, bytes }) => {
  const given = bytes === undefined ? undefined : Uint8Array.from(Buffer.from(bytes, "hex"));
  let used = 0;
  const source = (n) => {
    used += n;
    if (used > given.length) throw new Error("too few bytes");
    return given.subarray(used - n, used);
  };
  const draw = squared ? normal : laplace;
  const numbers = given ? draw(scale, count, source) : draw(scale, count);
  return { numbers: numbers.map(String), used };
});
process.stdout.write(JSON.stringify(answers));

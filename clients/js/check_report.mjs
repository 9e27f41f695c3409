// Reads {"question", "episode", "bytes"} cases from standard input and prints the reports that
// report.js makes of them, or what it throws; see tests/test_client_noise.py.

import { readQuestion, report } from "./report.js";

let text = "";
for await (const chunk of process.stdin) text += chunk;
const answers = JSON.parse(text).map(({ question, episode, bytes }) => {
  try {
    const read = readQuestion(question);
    if (bytes === undefined) return { report: report(read, episode) };
    const given = Uint8Array.from(Buffer.from(bytes, "hex"));
    let used = 0;
    const source = (n) => {
      used += n;
      return given.subarray(used - n, used);
    };
    return { report: report(read, episode, source) };
  } catch (error) {
    return { error: error.message };
  }
});
process.stdout.write(JSON.stringify(answers));

// A stream that the gateway ends, because its limit has nothing left, seen by the official `openai` package.
import assert from "node:assert/strict";
import test from "node:test";
import OpenAI from "openai";

const client = new OpenAI({ baseURL: process.env.TIDEGATE_BASE_URL, apiKey: process.env.TIDEGATE_API_KEY, maxRetries: 0 });

test("a truncated stream ends with length and says why", async () => {
  const messages = [{ role: "user", content: "Say something." }];
  const chunks = [];
  for await (const chunk of await client.chat.completions.create({ model: "talker", messages, stream: true })) chunks.push(chunk);
  const last = chunks.at(-1);
  assert.equal(last.choices[0].finish_reason, "length");
  assert.equal(last.id, chunks[0].id);
  assert.deepEqual(last.tidegate, { reason: "token_limit", rule: "key-tokens" });
});

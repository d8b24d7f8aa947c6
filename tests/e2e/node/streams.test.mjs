// The official `openai` package for Node reads streams with heartbeats and event ids. Driven by test_streams_resumed.py.
import assert from "node:assert/strict";
import { test } from "node:test";
import OpenAI from "openai";

const { TIDEGATE_BASE_URL: baseURL, TIDEGATE_API_KEY: apiKey, TIDEGATE_TEXT: text } = process.env;
const client = new OpenAI({ baseURL, apiKey, maxRetries: 0, timeout: 10_000 });
const messages = [{ role: "user", content: "x" }];

async function textOf(stream) {
  let read = "";
  for await (const chunk of stream) read += chunk.choices[0]?.delta?.content ?? "";
  return read;
}

test("an idle stream with heartbeats and ids gives the text", async () => {
  const headers = { "X-Tidegate-Resumable": "1" };
  const stream = await client.chat.completions.create({ model: "slow", messages, stream: true }, { headers });
  assert.equal(await textOf(stream), text);
});

test("an idle stream with heartbeats and without ids gives the text", async () => {
  const stream = await client.chat.completions.create({ model: "other", messages, stream: true });
  assert.equal(await textOf(stream), text);
});

// The official `openai` package for Node works unchanged. Driven by test_openai_node.py, which scripts the models named here.
import assert from "node:assert/strict";
import { test } from "node:test";
import OpenAI from "openai";

const { TIDEGATE_BASE_URL: baseURL, TIDEGATE_API_KEY: apiKey, TIDEGATE_DIRECT: direct } = process.env;
const client = new OpenAI({ baseURL, apiKey, maxRetries: 0, timeout: 10_000 });
const messages = [{ role: "user", content: "say something" }];
const SENTENCE = "Hello, wide world.";
const throughGateway = { skip: direct ? "only the gateway does this" : false };

async function textOf(stream) {
  let text = "";
  for await (const chunk of stream) text += chunk.choices[0]?.delta?.content ?? "";
  return text;
}

test("models are listed and retrieved", async () => {
  const ids = [];
  for await (const model of client.models.list()) ids.push(model.id);
  assert.ok(ids.includes("scripted") && ids.includes("second"), ids.join());
  assert.equal((await client.models.retrieve("second")).id, "second");
});

test("a whole answer has text and usage", async () => {
  const answer = await client.chat.completions.create({ model: "scripted", messages });
  assert.equal(answer.choices[0].message.content, SENTENCE);
  assert.equal(answer.usage.total_tokens, 14);
});

test("a stream gives the text, and usage only when asked", async () => {
  const plain = await client.chat.completions.create({ model: "scripted", messages, stream: true });
  let text = "";
  for await (const chunk of plain) {
    assert.equal(chunk.usage ?? null, null);
    text += chunk.choices[0].delta.content ?? "";
  }
  assert.equal(text, SENTENCE);
  const asked = await client.chat.completions.create({
    model: "scripted", messages, stream: true, stream_options: { include_usage: true },
  });
  let last;
  for await (const chunk of asked) last = chunk;
  assert.deepEqual([last.choices, last.usage.total_tokens], [[], 14]);
});

test("a streamed tool call is put together by the SDK", async () => {
  const tools = [{ type: "function", function: { name: "weather", parameters: { type: "object", properties: {} } } }];
  const runner = client.chat.completions.stream({ model: "say-tools", messages, tools });
  const [call] = (await runner.finalChatCompletion()).choices[0].message.tool_calls;
  assert.deepEqual([call.id, call.function.name, JSON.parse(call.function.arguments)], ["call_7", "weather", { city: "杭州" }]);
});

test("completions and embeddings", async () => {
  const answer = await client.completions.create({ model: "scripted", prompt: ["a", "b"] });
  assert.deepEqual(answer.choices.map((choice) => choice.text), [SENTENCE, SENTENCE]);
  const { data } = await client.embeddings.create({ model: "scripted", input: ["a", "b"] });
  assert.deepEqual(Array.from(data[1].embedding), [0.25, -0.5, 0.125]);
});

test("a stream cut at odd bytes comes out whole", async () => {
  const stream = await client.chat.completions.create({ model: "say-long", messages, stream: true });
  assert.equal(await textOf(stream), "潮水🌊👩‍👩‍👧‍👦 end");
});

test("a failure in mid-stream is an APIError", async () => {
  const stream = await client.chat.completions.create({ model: "cut", messages, stream: true });
  await assert.rejects(textOf(stream), (error) => error instanceof OpenAI.APIError && !(error instanceof OpenAI.APIConnectionError));
});

test("a client that gives up gets its own timeout", async () => {
  await assert.rejects(client.chat.completions.create({ model: "hanging", messages }, { timeout: 200 }), OpenAI.APIConnectionTimeoutError);
});

test("headers carry the request id", throughGateway, async () => {
  const { response, request_id } = await client.chat.completions.create({ model: "scripted", messages }).withResponse();
  assert.ok(request_id);
  assert.equal(response.headers.get("x-request-id"), request_id);
});

test("a wrong key is an AuthenticationError", throughGateway, async () => {
  const stranger = new OpenAI({ baseURL, apiKey: "sk-wrong-canary", maxRetries: 0 });
  await assert.rejects(stranger.models.list(), (error) => {
    assert.ok(error instanceof OpenAI.AuthenticationError);
    assert.equal(error.code, "invalid_api_key");
    return !error.message.includes("canary");
  });
});

test("an unknown model is a NotFoundError", throughGateway, async () => {
  await assert.rejects(client.chat.completions.create({ model: "no-such-model", messages }), OpenAI.NotFoundError);
});

test("a bad body is a BadRequestError", throughGateway, async () => {
  await assert.rejects(client.chat.completions.create({ model: "scripted", messages: "no list" }), OpenAI.BadRequestError);
});

test("an upstream's rate limit is a RateLimitError that says when to come back", throughGateway, async () => {
  await assert.rejects(client.chat.completions.create({ model: "limited", messages }), (error) => {
    assert.ok(error instanceof OpenAI.RateLimitError, String(error));
    return Number(error.headers.get("retry-after")) > 0;
  });
});

test("an upstream that is down is an InternalServerError", throughGateway, async () => {
  for (const stream of [false, true]) {
    await assert.rejects(client.chat.completions.create({ model: "down", messages, stream }), OpenAI.InternalServerError);
  }
});

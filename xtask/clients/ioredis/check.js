// What an application does with ioredis, against the server at argv[2]; a line for each check.
"use strict";

const assert = require("node:assert/strict");
const Redis = require("ioredis");

const [host, port] = process.argv[2].split(":");
const connect = () => new Redis({ host, port: Number(port), maxRetriesPerRequest: 1 });

const checks = {
  async "a value is set, read and expires"(redis) {
    assert.equal(await redis.set("k", "v", "PX", 60000), "OK");
    assert.equal(await redis.get("k"), "v");
    assert.ok((await redis.pttl("k")) > 0);
    assert.equal(await redis.del("k"), 1);
    assert.equal(await redis.get("k"), null);
  },
  async "bytes come back as they went"(redis) {
    const bytes = Buffer.from(Array.from({ length: 256 }, (_, n) => n));
    await redis.set("bytes", bytes);
    assert.deepEqual(await redis.getBuffer("bytes"), bytes);
  },
  async "a large value comes back whole"(redis) {
    const text = "0123456789".repeat(300000);
    await redis.set("large", text);
    assert.equal(await redis.get("large"), text);
  },
  async "a pipeline answers in order, errors in their places"(redis) {
    const replies = await redis.pipeline().set("p", "1").incr("p").lpush("p", "x").get("p").exec();
    assert.deepEqual(replies.map(([error, value]) => (error ? "error" : value)), ["OK", 2, "error", "2"]);
    assert.match(replies[2][0].message, /^WRONGTYPE/);
  },
  async "a thousand commands at once are answered"(redis) {
    const replies = await Promise.all(Array.from({ length: 1000 }, (_, n) => redis.set(`n:${n}`, n)));
    assert.ok(replies.every((reply) => reply === "OK"));
    const keys = Array.from({ length: 1000 }, (_, n) => `n:${n}`);
    assert.deepEqual(await redis.mget(keys), keys.map((_, n) => String(n)));
  },
  async "a transaction runs as one"(redis) {
    const replies = await redis.multi().set("t", "1").incrby("t", 41).get("t").exec();
    assert.deepEqual(replies, [[null, "OK"], [null, 42], [null, "42"]]);
  },
  async "a transaction does nothing after a watched key changed"(redis, other) {
    await redis.watch("w");
    await other.set("w", "changed");
    assert.equal(await redis.multi().set("w", "mine").exec(), null);
    assert.equal(await redis.get("w"), "changed");
  },
  async "a blocking pop is served by another connection"(redis, other) {
    const popped = redis.blpop("queue", "queue2", 10);
    // The other connection pushes only after the server reports this one as blocked.
    for (;;) {
      const [, blocked] = /blocked_clients:(\d+)/.exec(await other.info("clients"));
      if (blocked !== "0") break;
    }
    await other.rpush("queue2", "job");
    assert.deepEqual(await popped, ["queue2", "job"]);
    assert.equal(await redis.blpop("queue", 0.05), null);
  },
  async "messages are published, to channels and patterns"(redis, other) {
    const messages = [];
    const all = new Promise((resolve) => {
      const note = (...words) => messages.push(words) === 2 && resolve();
      redis.on("message", note);
      redis.on("pmessage", note);
    });
    assert.equal(await redis.subscribe("news"), 1);
    assert.equal(await redis.psubscribe("n?ws"), 2);
    assert.equal(await other.publish("news", "hello"), 2);
    await all;
    assert.deepEqual(messages.sort((a, b) => a.length - b.length), [
      ["news", "hello"],
      ["n?ws", "news", "hello"],
    ]);
    await redis.unsubscribe("news");
    await redis.punsubscribe("n?ws");
    assert.equal(await redis.ping(), "PONG");
  },
  async "scan streams meet everything once"(redis) {
    const fields = Object.fromEntries(Array.from({ length: 500 }, (_, n) => [`f${n}`, `${n}`]));
    await redis.hset("hash", fields);
    const gather = async (stream) => {
      const found = [];
      for await (const some of stream) found.push(...some);
      return found;
    };
    const keys = await gather(redis.scanStream({ match: "n:*", count: 100 }));
    assert.equal(new Set(keys).size, 1000);
    assert.equal((await gather(redis.hscanStream("hash"))).length, 1000);
  },
  async "collections answer in ioredis' shapes"(redis) {
    await redis.zadd("z", 1.5, "a", 2, "b");
    assert.deepEqual(await redis.zrange("z", 0, -1, "WITHSCORES"), ["a", "1.5", "b", "2"]);
    await redis.sadd("s", "x", "y");
    assert.deepEqual((await redis.smembers("s")).sort(), ["x", "y"]);
    await redis.hset("h", new Map([["f", "v"]]));
    assert.deepEqual(await redis.hgetall("h"), { f: "v" });
    assert.deepEqual(await redis.lrange("none", 0, -1), []);
  },
  async "databases are apart"(redis, other) {
    await other.select(3);
    await redis.set("apart", "0");
    assert.equal(await other.get("apart"), null);
    await other.select(0);
  },
};

(async () => {
  let failed = 0;
  for (const [name, check] of Object.entries(checks)) {
    const [redis, other] = [connect(), connect()];
    try {
      await check(redis, other);
      console.log(`ok ${name}`);
    } catch (error) {
      failed += 1;
      console.log(`FAILED ${name}: ${String(error.message).split("\n")[0]}`);
    }
    redis.disconnect();
    other.disconnect();
  }
  process.exit(failed ? 1 : 0);
})();

// Uploads with tus-js-client as it is published; kills and restarts the server meanwhile.
//
// check.js FOREBAY DIRECTORY [CERTIFICATE KEY]: prints `ok NAME` or `FAILED NAME: why` for each check. With a certificate
// the server speaks HTTPS; the environment (NODE_EXTRA_CA_CERTS) has it, too.
"use strict";
const { spawn } = require("node:child_process");
const crypto = require("node:crypto");
const fs = require("node:fs");
const path = require("node:path");
const readline = require("node:readline");
const { Readable } = require("node:stream");
const tus = require("tus-js-client");

const [program, dir, cert, key] = process.argv.slice(2);
let server, address = "127.0.0.1:0";

function start() {
  const log = fs.openSync(path.join(dir, "server.log"), "a");
  const data = path.join(dir, "data");
  const options = ["serve", "--data", data, "--listen", address, "--set", "cache.enabled=false"];
  if (cert) options.push("--tls-cert", cert, "--tls-key", key);
  server = spawn(program, options, { stdio: ["ignore", "pipe", log] });
  return new Promise((resolve, reject) => {
    server.once("exit", (code) => reject(new Error(`the server ended with ${code}`)));
    readline.createInterface({ input: server.stdout }).once("line", (line) => {
      address = line.split("//")[1].trim();
      resolve();
    });
  });
}

function kill() {
  return new Promise((resolve) => {
    server.removeAllListeners("exit");
    server.once("exit", resolve);
    server.kill("SIGKILL");
  });
}

const url = (route) => `${cert ? "https" : "http"}://${address}${route}`;

function upload(bytes, metadata, options) {
  return new Promise((resolve, reject) => {
    const upload = new tus.Upload(bytes, {
      endpoint: url("/v1/uploads"),
      retryDelays: [100, 200, 400, 800, 1600, 3200],
      metadata,
      onError: reject,
      onSuccess: () => resolve(upload),
      ...options,
    });
    upload.start();
  });
}

async function same(route, bytes) {
  const answer = await fetch(url(route));
  if (answer.status !== 200) throw new Error(`${route}: ${answer.status}`);
  const found = Buffer.from(await answer.arrayBuffer());
  if (!found.equals(bytes)) throw new Error(`${route}: ${found.length} bytes, or others`);
}

const checks = {
  async "one request"() {
    const bytes = crypto.randomBytes(200_000);
    await upload(bytes, { filename: "one.bin", namespace: "js" });
    await same("/v1/files/js/one.bin", bytes);
  },
  async "chunks"() {
    const bytes = crypto.randomBytes(1_000_001);
    await upload(bytes, { filename: "chunks.bin", namespace: "js" }, { chunkSize: 70_000 });
    await same("/v1/files/js/chunks.bin", bytes);
  },
  async "creation with upload"() {
    const bytes = crypto.randomBytes(100_000);
    const options = { uploadDataDuringCreation: true, chunkSize: 40_000 };
    await upload(bytes, { filename: "with.bin", namespace: "js" }, options);
    await same("/v1/files/js/with.bin", bytes);
  },
  async "an empty file"() {
    await upload(Buffer.alloc(0), { filename: "empty", namespace: "js" });
    await same("/v1/files/js/empty", Buffer.alloc(0));
  },
  async "a deferred length"() {
    const bytes = crypto.randomBytes(300_000);
    const options = { uploadLengthDeferred: true, chunkSize: 65_536 };
    await upload(Readable.from([bytes]), { filename: "deferred.bin", namespace: "js" }, options);
    await same("/v1/files/js/deferred.bin", bytes);
  },
  async "parallel uploads"() {
    const bytes = crypto.randomBytes(900_000);
    await upload(bytes, { filename: "parallel.bin", namespace: "js" }, { parallelUploads: 4 });
    await same("/v1/files/js/parallel.bin", bytes);
  },
  async "POST in place of PATCH"() {
    const bytes = crypto.randomBytes(100_000);
    const options = { overridePatchMethod: true, chunkSize: 30_000 };
    await upload(bytes, { filename: "override.bin", namespace: "js" }, options);
    await same("/v1/files/js/override.bin", bytes);
  },
  async "abort and resume"() {
    const bytes = crypto.randomBytes(1_500_000);
    const metadata = { filename: "resumed.bin", namespace: "js" };
    const location = await new Promise((resolve, reject) => {
      const first = new tus.Upload(bytes, {
        endpoint: url("/v1/uploads"),
        metadata,
        chunkSize: 100_000,
        onError: reject,
        onChunkComplete: (_, sent) => sent >= 500_000 && first.abort().then(() => resolve(first.url)),
      });
      first.start();
    });
    await upload(bytes, metadata, { uploadUrl: location });
    await same("/v1/files/js/resumed.bin", bytes);
  },
  async "termination"() {
    const bytes = crypto.randomBytes(10_000);
    const done = await upload(bytes, { filename: "gone.bin", namespace: "js" });
    await tus.Upload.terminate(done.url);
    const answer = await fetch(done.url, { method: "HEAD", headers: { "tus-resumable": "1.0.0" } });
    if (answer.status !== 404) throw new Error(`still there: ${answer.status}`);
  },
  async "kills of the server"() {
    const bytes = crypto.randomBytes(6_000_000);
    let kills = 0, running = Promise.resolve();
    await upload(bytes, { filename: "killed.bin", namespace: "js" }, {
      chunkSize: 250_000,
      retryDelays: Array(40).fill(250),
      onChunkComplete: (_, sent) => {
        if (kills < 4 && sent > (kills + 1) * 1_000_000) {
          kills += 1;
          running = kill().then(start);
        }
      },
    });
    await running;
    if (kills !== 4) throw new Error(`killed ${kills} times`);
    await same("/v1/files/js/killed.bin", bytes);
  },
};

(async () => {
  await start();
  let failed = false;
  for (const [name, check] of Object.entries(checks)) {
    try {
      await check();
      console.log(`ok ${name}`);
    } catch (error) {
      failed = true;
      console.log(`FAILED ${name}: ${String(error).split("\n")[0]}`);
    }
  }
  await kill();
  process.exit(failed ? 1 : 0);
})().catch((error) => {
  console.log(`FAILED start: ${error}`);
  server?.kill("SIGKILL");
  process.exit(1);
});

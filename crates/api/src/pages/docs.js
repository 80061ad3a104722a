// The forms of /docs: builds the request a form describes, sends it, shows the answer.
"use strict";

const SHOWN_MAX = 20000;

function request(form) {
  let path = form.dataset.path;
  const query = new URLSearchParams();
  const headers = new Headers();
  for (const input of form.querySelectorAll("input[data-in]")) {
    if (input.value === "") continue;
    if (input.dataset.in === "path") {
      // A wildcard segment keeps its slashes; any other is one segment.
      const wild = path.includes(`{*${input.name}}`) || input.name === "path";
      const text = wild
        ? input.value.split("/").map(encodeURIComponent).join("/")
        : encodeURIComponent(input.value);
      path = path.replace(`{*${input.name}}`, text).replace(`{${input.name}}`, text);
    } else if (input.dataset.in === "query") {
      query.append(input.name, input.value);
    } else if (input.dataset.in === "header") {
      headers.append(input.name, input.value);
    }
  }
  const key = document.getElementById("key").value;
  if (key !== "") headers.set("X-API-Key", key);
  const options = { method: form.dataset.method, headers };
  const type = form.querySelector("[data-role=type]");
  if (type) options.body = body(form, type.value, headers);
  const suffix = query.toString();
  return [suffix ? `${path}?${suffix}` : path, options];
}

function body(form, type, headers) {
  const files = form.querySelector("[data-role=file]").files;
  const text = form.querySelector("[data-role=text]").value;
  if (type === "multipart/form-data") {
    const data = new FormData();
    for (const file of files) data.append("files", file);
    if (text !== "") data.append("files", new File([text], "text.txt"));
    return data; // The browser adds the boundary to the content type.
  }
  headers.set("Content-Type", type);
  return files.length > 0 ? files[0] : text;
}

async function send(form) {
  const output = form.querySelector("output");
  output.hidden = false;
  output.textContent = "…";
  const [path, options] = request(form);
  const started = performance.now();
  try {
    const response = await fetch(path, options);
    const took = (performance.now() - started).toFixed(1);
    const type = response.headers.get("content-type") || "";
    const head = [`${options.method} ${path}`, `${response.status} ${response.statusText} in ${took} ms`];
    for (const [name, value] of response.headers) head.push(`${name}: ${value}`);
    const readable = /^(text\/|application\/([a-z.+-]*json|xml|x-ndjson))/.test(type);
    let shown = readable ? await response.text() : `(${(await response.blob()).size} bytes)`;
    if (type.startsWith("application/json")) {
      try { shown = JSON.stringify(JSON.parse(shown), null, 2); } catch { /* shown unchanged */ }
    }
    if (shown.length > SHOWN_MAX) shown = shown.slice(0, SHOWN_MAX) + "\n… (truncated)";
    output.textContent = `${head.join("\n")}\n\n${shown}`;
    output.className = response.ok ? "good" : "bad";
  } catch (error) {
    output.textContent = `${options.method} ${path}\n${error}`;
    output.className = "bad";
  }
}

for (const form of document.querySelectorAll("form.try")) {
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    send(form);
  });
}
document.getElementById("key-form").addEventListener("submit", (event) => event.preventDefault());

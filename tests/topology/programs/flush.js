// A bolt against Storm's multilang protocol, from scratch, as Storm's batching bolts are: it stores
// numbers, and emits their sum, anchored to all, and acks them when a tick tuple comes.
const fs = require("fs");
let received = "";
let started = false;
let stored = [];

function send(message) {
  process.stdout.write(JSON.stringify(message) + "\nend\n");
}

function flush(tick) {
  if (stored.length > 0) {
    const values = stored.map((message) => message.tuple[0]);
    send({ command: "emit", anchors: stored.map((message) => message.id), tuple: [values.join(" ")] });
    stored.forEach((message) => send({ command: "ack", id: message.id }));
    stored = [];
  }
  send({ command: "ack", id: tick });
}

function handle(message) {
  if (!started) {
    started = true;
    fs.writeFileSync(message.pidDir + "/" + process.pid, "");
    send({ pid: process.pid });
  } else if (Array.isArray(message)) {
    return; // task ids
  } else if (message.stream === "__heartbeat") {
    send({ command: "sync" });
  } else if (message.stream === "__tick") {
    flush(message.id);
  } else {
    stored.push(message);
  }
}

process.stdin.setEncoding("utf8");
process.stdin.on("data", (chunk) => {
  const parts = (received + chunk).split("\nend\n");
  received = parts.pop();
  parts.forEach((part) => handle(JSON.parse(part)));
});

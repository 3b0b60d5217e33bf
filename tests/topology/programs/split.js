// A bolt against Storm's multilang protocol, from scratch: splits lines into words.
// At a line that holds "die" it dies; one that holds "bad" fails; an empty one goes to "empty".
const fs = require("fs");
let received = "";
let started = false;

function send(message) {
  process.stdout.write(JSON.stringify(message) + "\nend\n");
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
  } else {
    const line = message.tuple[0];
    const words = line.split(" ").filter((word) => word !== "");
    if (words.includes("die")) {
      fs.writeSync(2, "I cannot go on\n");
      process.exit(5);
    }
    for (const word of words) {
      send({ command: "emit", anchors: [message.id], tuple: [word] });
    }
    if (words.length === 0) {
      send({ command: "emit", anchors: [message.id], stream: "empty", tuple: [line] });
    }
    send({ command: words.includes("bad") ? "fail" : "ack", id: message.id });
  }
}

process.stdin.setEncoding("utf8");
process.stdin.on("data", (chunk) => {
  const parts = (received + chunk).split("\nend\n");
  received = parts.pop();
  parts.forEach((part) => handle(JSON.parse(part)));
});

// Asking again and again: at a pace while all is well, ever more seldom while the server is gone, and
// not at all while the page is hidden. The state of the connection is one value for the whole page.

import { Gone } from "./api.js";

const SLOWEST = 15_000;
const FIRST = 1_000;

export class Connection {
  constructor(changed) {
    Object.assign(this, { changed, failures: 0, lastAnswer: null, lostAt: null, nextTry: null, isBack: false });
  }

  get isLost() {
    return this.failures > 0;
  }

  answered() {
    this.isBack = this.isLost;
    Object.assign(this, { failures: 0, lastAnswer: Date.now(), lostAt: null, nextTry: null });
    if (this.isBack) this.changed("back");
  }

  /** Returns after how many milliseconds to try again. */
  failed() {
    if (this.isLost && Date.now() < this.nextTry - 50) return this.nextTry - Date.now(); // another request has said so
    if (!this.isLost) this.lostAt = Date.now();
    this.failures += 1;
    const wait = Math.min(SLOWEST, FIRST * 2 ** (this.failures - 1));
    this.nextTry = Date.now() + wait;
    this.changed(this.failures === 1 ? "lost" : "still lost");
    return wait;
  }
}

/** Calls `work(signal)` every so many milliseconds, one call at a time; `every()` may be Infinity: then only
 *  when it is told to, or again when the server was gone. */
export class Poll {
  constructor(work, every, connection, refused) {
    Object.assign(this, { work, every, connection, refused, timer: null, stopping: null, running: false, again: false });
    this.seen = () => (document.hidden ? this.pause() : this.every() < Infinity && this.now());
  }

  start() {
    this.stopping = new AbortController();
    document.addEventListener("visibilitychange", this.seen);
    this.now();
  }

  stop() {
    document.removeEventListener("visibilitychange", this.seen);
    this.stopping?.abort();
    this.stopping = null;
    this.pause();
  }

  pause() {
    clearTimeout(this.timer);
    this.timer = null;
  }

  /** At once; if a call is under way, once more after it. */
  async now() {
    if (!this.stopping) return;
    if (this.running) {
      this.again = true;
      return;
    }
    this.pause();
    this.running = true;
    this.again = false;
    const { signal } = this.stopping;
    let wait = null;
    try {
      await this.work(signal);
      if (!signal.aborted) this.connection.answered();
    } catch (error) {
      if (signal.aborted) return;
      if (error instanceof Gone) wait = this.connection.failed();
      else this.refused(error);
    } finally {
      this.running = false;
    }
    if (signal.aborted || document.hidden) return;
    wait = this.again ? 0 : (wait ?? this.every());
    if (wait < Infinity) this.timer = setTimeout(() => this.now(), wait);
  }
}

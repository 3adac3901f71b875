/** Short notes about what was done ("cancelled 40 tasks"), shown by the shell for some seconds and read out. */

export interface Note {
  id: number;
  text: string;
}

const SHOWN_MS = 6000;

class Notes {
  shown = $state.raw<readonly Note[]>([]);
  #next = 0;

  say(text: string): void {
    const note = { id: this.#next++, text };
    this.shown = [...this.shown.slice(-2), note];
    setTimeout(() => (this.shown = this.shown.filter((each) => each !== note)), SHOWN_MS);
  }
}

export const notes = new Notes();

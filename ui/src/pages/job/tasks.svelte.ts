/**
 * The states of all tasks of a job: a letter for each, so that ten thousand are ten kilobytes, asked again when the stream says
 * that the job has changed. What one task is in full is asked for when it is chosen.
 */
import { get, type Schemas } from '../../lib/api';
import { concernsJob } from '../../lib/events';
import { resource, type Resource } from '../../lib/resource.svelte';

export type States = Schemas['TaskStates'];

const WORDS: Record<string, string> = {
  P: 'Pending', A: 'Assigned', R: 'Running', p: 'Running', d: 'Completed', C: 'Completed', F: 'Failed', X: 'Cancelled',
};
export const stateOf = (letter: string | undefined): string => WORDS[letter ?? ''] ?? 'Pending';

/** Tasks are called by their index; those of a job without an array count from 0. */
export const indexOf = (states: States, position: number): number => states.first_index + position * states.step;
export const numberOf = (states: States, position: number): string => `${states.number}.${indexOf(states, position)}`;

/** The position of `17.3` in job 17, or -1. */
export function positionOf(states: States, number: string): number {
  const index = Number(number.slice(number.lastIndexOf('.') + 1));
  const position = (index - states.first_index) / (states.step || 1);
  return number.startsWith(`${states.number}.`) && Number.isInteger(position) && position >= 0 && position < states.states.length ? position : -1;
}

export const taskStore = (id: () => string): Resource<States> => {
  const made: Resource<States> = resource((signal) => get('/v1/jobs/{id}/states', { path: { id: id() }, signal }), {
    everyMs: 1000,
    when: (event) => concernsJob(event, made.value?.id ?? ''),
  });
  return made;
};

import { expect, test } from 'vitest';
import { actionOf, said } from './fix';
import type { Schemas } from '../../lib/api';

const JOB = { id: '01kx0000000000000000000001', number: 17, status: 'Pending', may: ['cancel', 'hold', 'resubmit'] } as unknown as Schemas['JobView'];
const never = (): Promise<never> => Promise.reject(new Error('not asked'));
const title = (command: string, change: Record<string, unknown> = {}, job = JOB): string => actionOf({ text: 'it would', change, command }, job, never)?.title ?? '';

test('a change is a button only if the command that cancels this job is given', () => {
  expect(title('phalanx cancel 17 && phalanx submit --gpus 2 -- x', { gpus: 2 })).toBe('Replace the job');
  expect(title(`phalanx cancel ${JOB.id}`, { min: 2 })).toBe('Replace the job');
  expect(title('', { gpus: 2 })).toBe('');
  expect(title('phalanx cancel 18', { gpus: 2 })).toBe('');
  expect(title('phalanx cancel 17')).toBe('');
  expect(title('phalanx queue set default --gpus 8', { gpus: 2 })).toBe('');
  expect(title('phalanx cancel 17', { unheard_of: 2 })).toBe('');
  expect(title('phalanx cancel 17', { gpus: 2 }, { ...JOB, may: ['cancel'] })).toBe('');
});

test('commands that a button can carry out have one', () => {
  expect(title('phalanx release 17')).toBe('Release the job');
  expect(title('phalanx release 18')).toBe('');
  expect(title('phalanx update 17 --begin now')).toBe('Begin now');
  expect(title('phalanx update 17 --priority 5')).toBe('');
  expect(title('phalanx resume 17.3')).toBe('Resume the task');
  expect(title('phalanx approve 17')).toBe('Approve the job');
  expect(title('phalanx node resume n1 && phalanx node resume n2')).toBe('Resume 2 nodes');
  expect(title('phalanx node lose n1 --reason WHY')).toBe('');
});

test('changes are said in words', () => {
  expect(said({ gather: [{ layer: 'rack', must: true }], targets: [], gpu_type: null, gpus: 2 })).toBe('gather = rack:must, targets = none, gpu_type = none, gpus = 2');
});

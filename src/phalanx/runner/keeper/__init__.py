"""The keeper: a small process on each node that is the parent of every attempt there.

It outlives the runner that started it, so neither a running attempt nor its exit code is lost when the runner is
killed or upgraded; a new runner connects to its socket and re-attaches. It decides nothing: the runner orders what to
start and stop, and in advance what the keeper must do on its own (kill after the grace, stop everything when the lease
ran out).

It is run by path (`python -I -S keeper/__main__.py STATE_DIR`) and imports the standard library only, all of it at
start, because the package may be replaced on disk while it lives. Expensive imports (dataclasses, typing, asyncio)
stay out: they would double its memory.

A frame is a 4-byte big-endian length and a JSON array of requests or answers, each an array itself:

    ping                                     → pong
    brief        id {argv env cwd cgroups? account?}
                                             what many attempts share, until forget_brief id; account: the ids
                                             that they get, and the words before argv that give them
    start        key brief-id {env out err cpus cgroups log_max_bytes lane? limit_s? held?
                     not_after? memo? result? artifacts? scratch? argv? attached? input?}
                     → started key pid started_at | refused key code message; waits while its lane is taken
                     not_after: from this instant since boot on it is refused as late, not started or prepared
                     held: → ready key | refused key code message; takes its lane, and starts with go
                     out, err: the same path: both streams go into one file, in the order in which they are written
                     attached: it is stopped while the reader of its output is far behind, and not for long without one
                     input: its standard input is a pipe: → input key pid-of-keeper descriptor inode, also after a
                     listing; descriptor -1: it is closed
                     artifacts, scratch: folders that are made for it; result: a file that it may write
                     argv: its own command, instead of the brief's
    go           key not_after?              start one that is ready; no effect on any other
    retract      key                         withdraw what still waits for its lane: refused key retracted
    signal       key number                  to the whole tree; pause key and resume key likewise
    reader       key log at for_s            of log 0 or 1 of an attached one all before `at` was read (null: nothing
                                             new), and its reader is there for so long; → unread key true|false
                                             when it is stopped for the reader, and when it goes on
    end_input    key                         close its standard input: it reads the end of it
    stop         key grace_s why?            SIGTERM, after the grace SIGKILL; a later start is refused.
                                             Its exit has the why, also for a runner that did not ask for it
    lease        seconds_left until?         without a renewal in that time, and before that instant since
                                             boot (the message may be late), everything is stopped
    list                                     → listing [[key state pid started_at exit? [tick tick]? memo?]…] facts
    forget       [keys]                      ended attempts the runner has safely reported
    shutdown     grace_s                     stop everything, then exit

and, whenever an attempt has ended and nothing of its tree is alive: `ended key exit`. A request that cannot be read is
answered with `misunderstood text`.
"""

# 2: held starts; 3: a lease ends at an instant; 4: ping, nothing starts late, stops have a why; 5: memos, threaded
# sets; makes the folder for artifacts, its exits say which files were left, and tasks have accounts; 6: out and err may
# be one file; 7: attached attempts, commands of their own; 8: standard input
VERSION = 8

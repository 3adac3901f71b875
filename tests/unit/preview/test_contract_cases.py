"""The defects and complaints that the contract lists about others, each as a plan that does better.

D1 to D4 are defects of Koordinator's program; the issues are those that users of Volcano, Kueue, KAI and others wrote.
"""

from __future__ import annotations

from tests.unit.preview.files import domains, dominant, evicted, places, plan

GPUS = "nodes: [{name: n1, cores: 64, gpus: 8}]\n"


def a_gang(name: str, tasks: int, **fields: object) -> str:
    """A native job file."""
    more = "".join(f"{key}: {value}\n" for key, value in fields.items())
    return f"name: {name}\ngang: true\ntasks: {tasks}\n{more}"


# D1 to D4


def test_d1_two_members_are_never_nominated_to_one_node_that_holds_one():
    reply = plan("two-victims.yaml", job="preemptor.yaml")
    assert sorted(places(reply).values()) == ["node-1", "node-2"]
    assert evicted(reply) == [("victim-1", "node-1"), ("victim-2", "node-2")]


def test_d2_of_equal_domains_the_one_that_costs_less_is_cleared():
    cluster = """
    topology: [{layer: rack, labels: [rack]}]
    nodes:
      - {name: "a[1-2]", cores: 8, gpus: 8, labels: {rack: a}}
      - {name: "b[1-2]", cores: 8, gpus: 8, labels: {rack: b}}
    running:
      - {name: dear, gang: true, priority: 5, gpus: 8, places: [a1, a2]}
      - {name: cheap, gang: true, priority: 1, gpus: 8, places: [b1, b2]}
    """
    reply = plan(cluster, job=a_gang("urgent", 2, gpus=8, priority=9, gather="[{layer: rack, must: true}]"))
    assert evicted(reply) == [("cheap.0", "b1"), ("cheap.1", "b2")]


def test_d3_a_node_is_not_dear_for_tasks_that_need_not_leave():
    """n1 has many small tasks of which one is enough; n2 one job of higher priority."""
    cluster = """
    nodes: [{name: "n[1-2]", cores: 8, gpus: 8}]
    running:
      - {name: a, priority: 1, gpus: 1, places: [n1]}
      - {name: b, priority: 2, gpus: 1, places: [n1]}
      - {name: c, priority: 3, gpus: 6, places: [n1]}
      - {name: d, priority: 4, gpus: 8, places: [n2]}
    """
    reply = plan(cluster, job="name: urgent\ngpus: 1\npriority: 9\n")
    assert evicted(reply) == [("a", "n1")]


def test_d4_a_task_is_not_evicted_before_it_has_run_as_long_as_it_was_promised():
    cluster = """
    nodes: [{name: n1, cores: 8, gpus: 8}]
    running: [{name: young, gpus: 8, places: [n1], started_at: 990, min_run: 1m}]
    now: 1000
    """
    job = "name: urgent\ngpus: 8\npriority: 9\n"
    reply = plan(cluster, job=job)
    assert (reply.exit, reply.evictions) == (3, [])
    assert evicted(plan(cluster.replace("now: 1000", "now: 1051"), job=job)) == [("young", "n1")]


def test_d4_a_protected_task_is_never_evicted():
    cluster = GPUS + "running: [{name: precious, gpus: 8, places: [n1], evictable: false}]\n"
    reply = plan(cluster, job="name: urgent\ngpus: 8\npriority: 9\n")
    assert (reply.exit, reply.evictions) == (3, [])


# Whole or not at all


def test_of_two_gangs_that_fit_only_alone_exactly_one_is_whole():
    """volcano#3373: two gangs of 100 on 100 nodes, both partly running."""
    cluster = 'nodes: [{name: "n[1-100]", cores: 8, gpus: 8}]\n'
    reply = plan(cluster, job=f"{a_gang('one', 100, gpus=8)}---\n{a_gang('two', 100, gpus=8)}")
    assert {each.job for each in reply.placements} == {"one"}
    assert len({each.node for each in reply.placements}) == 100
    assert (reply.exit, [each.job for each in reply.reasons if each.dominant]) == (3, ["two"])


def test_gang_groups_do_not_hold_halves_against_each_other():
    """koordinator#872: groups A and B start together, C and D too, and there is room for one pair."""
    cluster = 'nodes: [{name: "n[1-2]", cores: 2}]\n'
    pair = "name: {name}\ngang: true\ngroups: [{{name: {a}, tasks: 2}}, {{name: {b}, tasks: 2}}]\n"
    jobs = f"{pair.format(name='first', a='a', b='b')}---\n{pair.format(name='second', a='c', b='d')}"
    reply = plan(cluster, job=jobs)
    assert {(each.job, each.group) for each in reply.placements} == {("first", "a"), ("first", "b")}
    assert len(reply.placements) == 4


def test_one_that_cannot_start_does_not_stop_the_others():
    """scheduler-plugins#682: one unschedulable group blocks all."""
    cluster = 'nodes: [{name: "n[1-2]", cores: 8}]\nrunning: [{name: busy, cores: 4, places: [n1]}]\n'
    reply = plan(cluster, job=f"{a_gang('large', 2, cores=8)}---\nname: small\ncores: 1\ntime_limit: 60\n")
    assert {each.job for each in reply.placements} == {"small"}


def test_a_launcher_that_begins_after_its_workers_is_placed_with_them():
    """mpi-operator#608: the launcher comes only when the workers run, so the gang is never complete."""
    job = """
    name: mpi
    gang: true
    groups:
      - {name: worker, tasks: 3, cores: 2}
      - {name: launcher, cores: 1, after: [{group: worker, when: started}]}
    """
    reply = plan('nodes: [{name: "n[1-4]", cores: 2}]\n', job=job)
    assert (reply.exit, len(reply.placements)) == (0, 4)


# Preemption that helps, and hurts no more than it has to


def test_who_needs_one_place_evicts_one():
    """volcano#5984: needed 1, evicted 10."""
    running = "running:\n" + "".join(
        f"  - {{name: v{n}, gpus: 1, cores: 1, places: [n1]}}\n" for n in range(8)
    )
    reply = plan(GPUS + running, job="name: urgent\ngpus: 1\npriority: 9\n")
    assert (reply.exit, len(reply.evictions)) == (0, 1)


def test_evictions_that_would_not_help_are_not_made():
    """kueue#5243: eight one-GPU tasks on four nodes are evicted, and the 8-GPU task still cannot run."""
    cluster = """
    nodes: [{name: "n[1-4]", cores: 64, gpus: 8}]
    running:
      - {name: low, gpus: 1, places: {n1: 2, n2: 2, n3: 2, n4: 2}}
      - {name: high, gpus: 6, priority: 100, places: [n1, n2, n3, n4]}
    """
    reply = plan(cluster, job="name: urgent\ngpus: 8\npriority: 9\n")
    assert (reply.exit, reply.evictions, reply.placements) == (3, [], [])
    assert dominant(reply) == ("WaitingCapacity", "capacity")
    assert "EvictionsNotEnough" in [each.code for each in reply.reasons]


def test_a_free_node_counts_although_nobody_is_evicted_there():
    """volcano#3291: the free node is ignored because it has no victims."""
    cluster = 'nodes: [{name: "n[1-2]", cores: 8, gpus: 8}]\nrunning: [{name: low, gpus: 8, places: [n2]}]\n'
    reply = plan(cluster, job=a_gang("urgent", 2, gpus=8, priority=9))
    assert sorted(places(reply).values()) == ["n1", "n2"]
    assert evicted(reply) == [("low", "n2")]


def test_a_victim_gang_gives_its_surplus_and_stays_whole():
    """volcano#3595, #4607: task-level preemption breaks gangs."""
    cluster = """
    nodes: [{name: "n[1-4]", cores: 8, gpus: 8}]
    running: [{name: elastic, gang: true, tasks: 4, min: 3, gpus: 8, places: [n1, n2, n3, n4]}]
    """
    reply = plan(cluster, job="name: urgent\ngpus: 8\npriority: 9\n")
    assert len(reply.evictions) == 1


def test_a_victim_gang_that_would_be_broken_leaves_whole():
    cluster = """
    nodes: [{name: "n[1-2]", cores: 8, gpus: 8}]
    running: [{name: rigid, gang: true, tasks: 2, gpus: 8, places: [n1, n2]}]
    """
    reply = plan(cluster, job="name: urgent\ngpus: 8\npriority: 9\n")
    assert sorted(evicted(reply)) == [("rigid.0", "n1"), ("rigid.1", "n2")]


def test_the_fewest_jobs_are_broken():
    cluster = """
    nodes: [{name: "n[1-2]", cores: 8, gpus: 8}]
    running:
      - {name: many, array: 1-8, gpus: 1, places: {n1: 8}}
      - {name: a, gpus: 4, places: [n2]}
      - {name: b, gpus: 4, places: [n2]}
    """
    reply = plan(cluster, job="name: urgent\ngpus: 8\npriority: 9\n")
    assert {each.job for each in reply.evictions} == {"many"}


def test_only_lower_priorities_are_evicted():
    cluster = GPUS + "running: [{name: equal, gpus: 8, priority: 9, places: [n1]}]\n"
    reply = plan(cluster, job="name: urgent\ngpus: 8\npriority: 9\n")
    assert (reply.exit, reply.evictions) == (3, [])


def test_a_layer_that_must_hold_all_is_kept_under_preemption():
    """volcano#4533: the hard topology is violated after preemption."""
    cluster = """
    topology: [{layer: rack, labels: [rack]}]
    nodes:
      - {name: "a[1-2]", cores: 8, gpus: 8, labels: {rack: a}}
      - {name: "b[1-2]", cores: 8, gpus: 8, labels: {rack: b}}
    running:
      - {name: low, gpus: 8, places: [a1]}
      - {name: also-low, gpus: 8, places: [b1]}
    """
    reply = plan(cluster, job=a_gang("urgent", 2, gpus=8, priority=9, gather="[{layer: rack, must: true}]"))
    assert len(domains(reply)) == 1
    assert len(reply.evictions) == 1


def test_domain_tightness_is_weighed_against_the_cost_of_clearing_it():
    """The tight rack would cost an eviction, the loose one none."""
    cluster = """
    topology: [{layer: rack, labels: [rack]}]
    nodes:
      - {name: "a[1-2]", cores: 8, gpus: 8, labels: {rack: a}}
      - {name: "b[1-4]", cores: 8, gpus: 8, labels: {rack: b}}
    running: [{name: low, gpus: 8, places: [a1]}]
    """
    reply = plan(cluster, job=a_gang("urgent", 2, gpus=8, priority=9, gather="[{layer: rack, must: true}]"))
    assert (reply.evictions, domains(reply)) == ([], [["b"]])


# Topology


def test_the_same_block_name_under_two_spines_is_two_blocks():
    rule = "[{layer: BlockLayer, must: true}]"
    two = plan("same-name.yaml", job=a_gang("two", 2, gpus=8, gather=rule))
    assert (two.exit, domains(two)) == (0, [["s1", "b1"]])
    three = plan("same-name.yaml", job=a_gang("three", 3, gpus=8, gather=rule))
    assert (three.exit, dominant(three)) == (4, ("MustGatherImpossible", "never"))


def test_every_domain_holds_a_multiple_of_the_members():
    """podCountMultiple: b1 has room for three, so two of them stand there and the others in b2."""
    cluster = """
    topology: [{layer: block, labels: [block]}]
    nodes:
      - {name: "a[1-3]", cores: 1, labels: {block: b1}}
      - {name: "b[1-2]", cores: 1, labels: {block: b2}}
    """
    reply = plan(cluster, job=a_gang("pairs", 4, cores=1, gather="[{layer: block, multiple: 2}]"))
    counts = [sum(each.domain == [block] for each in reply.placements) for block in ("b1", "b2")]
    assert (reply.exit, counts) == (0, [2, 2])


def test_a_multiple_that_cannot_be_made_is_said_at_once():
    cluster = """
    topology: [{layer: block, labels: [block]}]
    nodes: [{name: "a[1-4]", cores: 1, labels: {block: b1}}]
    """
    reply = plan(cluster, job=a_gang("odd", 3, cores=1, gather="[{layer: block, multiple: 2}]"))
    assert (reply.exit, dominant(reply)) == (4, ("MustGatherImpossible", "never"))


def test_of_equally_tight_domains_the_one_in_the_fuller_parent_wins():
    cluster = """
    topology: [{layer: spine, labels: [spine]}, {layer: block, labels: [block]}]
    nodes:
      - {name: "a[1-2]", cores: 1, labels: {spine: s1, block: b1}}
      - {name: "b[1-2]", cores: 1, labels: {spine: s1, block: b2}}
      - {name: "c[1-2]", cores: 1, labels: {spine: s2, block: b3}}
    """
    reply = plan(cluster, job=a_gang("pair", 2, cores=1, gather="[{layer: block}]"))
    assert domains(reply) == [["s2", "b3"]]


def test_as_few_children_as_possible_are_used():
    cluster = """
    topology: [{layer: spine, labels: [spine]}, {layer: block, labels: [block]}]
    nodes:
      - {name: a1, cores: 1, labels: {spine: s1, block: b1}}
      - {name: "b[1-2]", cores: 1, labels: {spine: s1, block: b2}}
      - {name: c1, cores: 1, labels: {spine: s1, block: b3}}
    """
    reply = plan(cluster, job=a_gang("three", 3, cores=1, gather="[{layer: spine, must: true}]"))
    assert len(domains(reply)) == 2
    assert ["s1", "b2"] in domains(reply)


def test_members_gather_where_their_like_runs_already():
    cluster = """
    topology: [{layer: block, labels: [block]}]
    nodes:
      - {name: "a[1-2]", cores: 4, labels: {block: b1}}
      - {name: "b[1-2]", cores: 8, labels: {block: b2}}
    running: [{name: cache, gang: {affinity: model}, cores: 1, places: [b1]}]
    """
    job = "name: reader\ngang: {affinity: model}\ntasks: 2\ncores: 2\ngather: [{layer: block}]\n"
    assert domains(plan(cluster, job=job)) == [["b2"]]


def test_members_of_different_shapes_gather_too():
    cluster = """
    topology: [{layer: block, labels: [block]}]
    nodes:
      - {name: a1, cores: 4, gpus: 8, labels: {block: b1}}
      - {name: "b[1-2]", cores: 8, gpus: 8, labels: {block: b2}}
    """
    job = """
    name: mixed
    gang: true
    gather: [{layer: block, must: true}]
    groups: [{name: head, cores: 6}, {name: worker, tasks: 2, gpus: 8, cores: 2}]
    """
    reply = plan(cluster, job=job)
    assert (reply.exit, domains(reply)) == (0, [["b2"]])


def test_a_gang_starts_with_its_minimum_and_the_rest_may_follow():
    cluster = 'nodes: [{name: "n[1-3]", cores: 1}]\n'
    reply = plan(cluster, job=a_gang("elastic", 5, cores=1, min=3))
    assert (reply.exit, len(reply.placements)) == (0, 3)
    assert [(each.tasks, each.waits) for each in reply.reasons] == [(2, False)]


def test_later_members_stay_in_the_domain_of_those_that_run():
    cluster = """
    topology: [{layer: rack, labels: [rack]}]
    nodes:
      - {name: "a[1-3]", cores: 1, labels: {rack: a}}
      - {name: "b[1-3]", cores: 1, labels: {rack: b}}
    running:
      - {name: elastic, gang: true, gather: [{layer: rack, must: true}], tasks: 3, min: 1, cores: 1, places: [b1, b2]}
    """
    reply = plan(cluster)
    assert places(reply) == {"elastic.2": "b3"}


def test_a_node_without_labels_is_still_used_where_no_rule_forbids_it():
    """Koordinator leaves such a node out, even for jobs that only prefer to gather."""
    cluster = """
    topology: [{layer: spine, labels: [spine]}, {layer: block, labels: [block]}]
    nodes:
      - {name: a1, cores: 1, labels: {spine: s1, block: b1}}
      - {name: lost, cores: 1}
    """
    reply = plan(cluster, job=a_gang("pair", 2, cores=1, gather="[{layer: block}]"))
    assert (reply.exit, sorted(places(reply).values())) == (0, ["a1", "lost"])


# Reasons


def test_free_devices_that_do_not_help_are_explained():
    """KAI#2058: 16 GPUs are free, and the job is pending."""
    cluster = """
    nodes: [{name: "n[1-4]", cores: 64, gpus: 8}]
    running: [{name: others, gpus: 4, priority: 9, places: [n1, n2, n3, n4]}]
    """
    reply = plan(cluster, job=a_gang("train", 2, gpus=8, priority=5))
    assert (reply.exit, dominant(reply)) == (3, ("GangIncomplete", "capacity"))
    first = reply.reasons[0]
    assert first.numbers["slots"] == 0
    assert first.nodes[0].count == 4
    assert first.fix is not None
    assert first.fix.change == {"gpus": 4}


def test_a_quota_is_told_before_the_nodes_are():
    cluster = GPUS + "queues: {default: {gpus: 4}}\n"
    reply = plan(cluster, job=a_gang("train", 2, gpus=4))
    assert (reply.exit, dominant(reply)) == (4, ("ExceedsQuotaMax", "never"))
    running = GPUS + "queues: {default: {gpus: 4}}\nrunning: [{name: a, gpus: 4, places: [n1]}]\n"
    reply = plan(running, job="name: b\ngpus: 2\n")
    assert (reply.exit, dominant(reply)) == (3, ("QuotaExhausted", "policy"))
    assert reply.reasons[0].expected_at is None, "whose end would free the quota has no time limit"
    reply = plan(running, job=a_gang("train", 2, gpus=1))
    assert (reply.exit, dominant(reply)) == (3, ("QuotaExhausted", "policy"))
    assert reply.reasons[0].expected_at is None


def test_an_unknown_layer_is_named_with_those_there_are():
    cluster = """
    topology: [{layer: rack, labels: [rack]}]
    nodes: [{name: "a[1-2]", cores: 1, labels: {rack: a}}]
    """
    reply = plan(cluster, job=a_gang("train", 2, cores=1, gather="[{layer: galaxy, must: true}]"))
    assert (reply.exit, dominant(reply)) == (4, ("MustGatherImpossible", "never"))
    assert "layers: cluster, rack, node" in reply.reasons[0].text


def test_who_is_held_back_for_the_first_in_the_queue_is_told_for_whom():
    cluster = """
    nodes: [{name: "n[1-2]", cores: 8}]
    running: [{name: busy, cores: 8, places: [n1], time_limit: 100, started_at: 0}]
    waiting: [{name: first, gang: true, tasks: 2, cores: 8}]
    now: 0
    """
    reply = plan(cluster, job="name: second\ncores: 8\n")
    assert (reply.exit, dominant(reply)) == (3, ("ReservedForOther", "policy"))
    assert "kept for first" in reply.reasons[0].text
    assert reply.reasons[0].fix is not None
    assert plan(cluster, job="name: second\ncores: 8\ntime_limit: 100\n").exit == 0


def test_the_first_in_the_queue_is_told_when_it_will_start():
    cluster = """
    nodes: [{name: "n[1-2]", cores: 8}]
    running: [{name: busy, cores: 8, places: [n1], time_limit: 100, started_at: 0}]
    now: 40
    """
    reply = plan(cluster, job=a_gang("train", 2, cores=8))
    assert reply.reasons[0].expected_at == 100

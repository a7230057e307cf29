"""PPO in plain torch: a policy learns to balance gymnasium's pole.

Sources: Schulman et al., Proximal Policy Optimization Algorithms (2017); advantages by their
High-Dimensional Continuous Control Using Generalized Advantage Estimation (2015), equation 16.

Axes: T steps of time, E environments at once, N of both together, B of a batch, S of a state.
"""

import gymnasium
import torch
from torch import Tensor, nn
from torch.distributions import Categorical

from trainables.worker import Params, Worker

GAME = "CartPole-v1"  # 1 for each step that the pole stands, 500 at most
ENVIRONMENTS, STEPS, BATCH = 8, 128, 256
EPISODES, TEST_SEED = 32, 1_000_003  # the metric's, which begin alike in all trials
Rollout = dict[str, Tensor]


def train(params: Params, worker: Worker) -> None:
    """Learn from 1,024 moves an iteration; report `return`, the rewards of an episode."""
    torch.set_num_threads(1)  # faster for networks so small
    torch.manual_seed(worker.seed)
    actor, critic = network(outputs=2), network(outputs=1)
    weights = [*actor.parameters(), *critic.parameters()]
    optimizer = torch.optim.Adam(weights, lr=params["lr"], eps=1e-5)
    envs = gymnasium.make_vec(GAME, num_envs=ENVIRONMENTS)
    state_ES = torch.tensor(envs.reset(seed=worker.seed % 2**31)[0])
    for iteration in worker.steps():
        rollout, state_ES = play(envs, actor, critic, state_ES, params)
        for _ in range(params["epochs"]):
            for index_B in torch.randperm(len(rollout["state"])).split(BATCH):
                batch = {name: values_N[index_B] for name, values_N in rollout.items()}
                optimizer.zero_grad()
                loss(actor, critic, batch, params).backward()
                nn.utils.clip_grad_norm_(weights, 0.5)
                optimizer.step()
        worker.report(iteration, {"return": mean_return(actor)})


def network(outputs: int) -> nn.Module:
    first, second = [nn.Linear(4, 64), nn.Tanh()], [nn.Linear(64, 64), nn.Tanh()]
    return nn.Sequential(*first, *second, nn.Linear(64, outputs))


@torch.no_grad()
def play(
    envs: gymnasium.vector.VectorEnv,
    actor: nn.Module,
    critic: nn.Module,
    state_ES: Tensor,
    params: Params,
) -> tuple[Rollout, Tensor]:
    """Return moves with their advantages (N) and the states from which to go on (E, S)."""
    moves: list[Rollout] = []
    begins_E = torch.zeros(ENVIRONMENTS, dtype=torch.bool)  # this move only begins an episode
    for _ in range(STEPS):
        policy = Categorical(logits=actor(state_ES))
        action_E = policy.sample()
        move = {"state": state_ES, "action": action_E, "log_prob": policy.log_prob(action_E)}
        state, reward, ended, cut, _ = envs.step(action_E.numpy())
        state_ES, ended_E, cut_E = torch.tensor(state), torch.tensor(ended), torch.tensor(cut)
        rest_E = critic(state_ES).squeeze(-1) * ~ended_E  # an episode that was cut would go on
        move["value"] = critic(move["state"]).squeeze(-1)
        move["error"] = torch.tensor(reward).float() + params["gamma"] * rest_E - move["value"]
        move["counts"], move["last"] = ~begins_E, ended_E | cut_E
        begins_E = move["last"]
        moves.append(move)
    later_E = torch.zeros(ENVIRONMENTS)
    for move in reversed(moves):
        later_E = move["error"] + params["gamma"] * params["lambda"] * later_E * ~move["last"]
        move["advantage"], move["target"] = later_E, later_E + move["value"]
    kept_TE = torch.stack([move["counts"] for move in moves])
    return {name: torch.stack([move[name] for move in moves])[kept_TE] for name in move}, state_ES


def loss(actor: nn.Module, critic: nn.Module, batch: Rollout, params: Params) -> Tensor:
    """Return the clipped loss of the policy, with those of the values and of the entropy."""
    policy = Categorical(logits=actor(batch["state"]))
    ratio_B = (policy.log_prob(batch["action"]) - batch["log_prob"]).exp()
    gain_B = (batch["advantage"] - batch["advantage"].mean()) / (batch["advantage"].std() + 1e-8)
    clipped_B = ratio_B.clamp(1 - params["clip"], 1 + params["clip"])
    surprise_B = (critic(batch["state"]).squeeze(-1) - batch["target"]).square()
    bonus_B = params["entropy"] * policy.entropy()
    return (0.5 * surprise_B - torch.minimum(ratio_B * gain_B, clipped_B * gain_B) - bonus_B).mean()


@torch.no_grad()
def mean_return(actor: nn.Module) -> float:
    """Return the mean length of episodes in which the policy takes its best action."""
    envs = gymnasium.make_vec(GAME, num_envs=EPISODES)
    state, _ = envs.reset(seed=TEST_SEED)
    lengths_E, stands_E = torch.zeros(EPISODES), torch.ones(EPISODES, dtype=torch.bool)
    while stands_E.any():
        lengths_E += stands_E
        state, _, ended, cut, _ = envs.step(actor(torch.tensor(state)).argmax(-1).numpy())
        stands_E &= ~torch.tensor(ended | cut)
    return float(lengths_E.mean())

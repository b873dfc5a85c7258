"""Training checkpoints of PyTorch: saved, and resumed after their rows were edited."""


def model(words, tied):
    import torch

    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.words = torch.nn.Embedding(words, 4)
            self.norm = torch.nn.LayerNorm(4)
            self.head = torch.nn.Linear(4, words)
            if tied:
                self.head.weight = self.words.weight

        def forward(self, tokens):
            return self.head(self.norm(self.words(tokens)))

    return Model()


def optimizer(model, groups):
    import torch

    if groups == "one":
        return torch.optim.AdamW(model.parameters(), lr=0.1)
    decays = [parameter for name, parameter in model.named_parameters() if "norm" not in name and "bias" not in name]
    rest = [parameter for name, parameter in model.named_parameters() if "norm" in name or "bias" in name]
    return torch.optim.AdamW([{"params": rest, "weight_decay": 0.0}, {"params": decays}], lr=0.1)


def step(model, optimizer):
    tokens = __import__("torch").arange(model.words.num_embeddings)
    optimizer.zero_grad()
    model(tokens).square().mean().backward()
    optimizer.step()


def training_save(request):
    """Trains a little and saves model and optimizer."""
    import torch

    torch.manual_seed(1)
    made = model(10, request["tied"])
    trained = optimizer(made, request["groups"])
    for _ in range(2):
        step(made, trained)
    torch.save({"model": made.state_dict(), "optimizer": trained.state_dict(), "epoch": 2}, request["path"])
    return {}


def training_resumes(request):
    """Resumes an edited checkpoint: every state has the shape of its parameter, rows moved as the map says."""
    import torch

    before = torch.load(request["source"], weights_only=True)
    after = torch.load(request["path"], weights_only=True)
    made = model(request["words"], request["tied"])
    made.load_state_dict(after["model"])
    trained = optimizer(made, request["groups"])
    trained.load_state_dict(after["optimizer"])
    old = optimizer(model(10, request["tied"]), request["groups"])
    old.load_state_dict(before["optimizer"])
    states = 0
    for ours, theirs in zip(trained.param_groups, old.param_groups):
        for new, was in zip(ours["params"], theirs["params"]):
            for slot in ("exp_avg", "exp_avg_sq"):
                moved, origin = trained.state[new][slot], old.state[was][slot]
                assert moved.shape == new.shape, (slot, moved.shape, new.shape)
                if was.shape[0] == 10 and was.shape != new.shape or request["rows"] and was.shape[0] == 10:
                    origin = torch.cat([origin, origin.new_zeros((request["words"] - 10, *origin.shape[1:]))])
                    for source, target in request["rows"]:
                        origin[target] = old.state[was][slot][source]
                assert torch.equal(moved, origin), slot
                states += 1
    step(made, trained)
    return {"states": states}


REQUESTS = {function.__name__: function for function in (training_save, training_resumes)}

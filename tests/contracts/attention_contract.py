"""Requirements of every attention block: a class of tests that the tests of each block inherit."""

import copy
import re
from collections.abc import Callable

import pytest
import torch
from torch import nn

from cgp import CategoricalLikelihood, Objective
from cgp.attention import Attention, LossTerm
from cgp.networks.model.blocks import added_losses, clear_added_losses, sampling

EMBED_DIM, NUM_HEADS, NUM_TOKENS = 12, 3, 7
TOKENS = torch.zeros(2, 3, EMBED_DIM).double()


class AttentionContract:
    """Inherit, and name the block.

    ``takes_causal = True`` adds the causal tests; ``takes_cross``, ``is_equivariant = False`` leave theirs out.

    A variant of a block that is tested already, with another kernel, say, is not compiled and exported again.
    """

    attention: Callable[..., Attention]
    takes_causal = False
    takes_cross = True
    is_equivariant = True
    is_variant = False

    def make(self, embed_dim: int = EMBED_DIM, num_heads: int = NUM_HEADS, **options) -> Attention:
        """A fresh block."""
        return type(self).attention(embed_dim, num_heads, **options)  # of the class: partial is to become a method

    def block(self, **options) -> Attention:
        """A fresh block in float64, where rounding cannot hide a mistake."""
        return self.make(**options).double()

    def tokens(self, *batch: int, n: int = NUM_TOKENS) -> torch.Tensor:
        """Unit-variance tokens."""
        return torch.randn(*batch, n, EMBED_DIM, dtype=torch.float64)

    @pytest.mark.parametrize(
        ("shape", "options"),
        [((NUM_TOKENS,), {}), ((1, NUM_TOKENS), {"num_heads": 1}), ((2, 3, NUM_TOKENS), {}), ((2, 1), {})],
    )
    def test_output_has_the_shape_of_the_tokens(self, shape, options):
        block, x = self.block(**options), self.tokens(*shape[:-1], n=shape[-1])
        for mode in (True, False):
            out = block.train(mode)(x)
            assert out.shape == x.shape
            assert torch.isfinite(out).all()

    def test_batch_equals_loop(self):
        block, x = self.block().eval(), self.tokens(2, 3)
        together = block(x)
        for i in range(2):
            torch.testing.assert_close(together[i], block(x[i]))

    @pytest.mark.parametrize("real", [1, 4, NUM_TOKENS - 1])
    def test_masking_equals_removing(self, real):
        block, x = self.block().eval(), self.tokens(2)
        mask = torch.zeros(2, NUM_TOKENS, dtype=torch.bool)
        mask[:, real:] = True
        torch.testing.assert_close(block(x, key_padding_mask=mask)[:, :real], block(x[:, :real]))
        if block.stochastic:
            variance = block.token_variance(x, key_padding_mask=mask)
            torch.testing.assert_close(variance[..., :real], block.token_variance(x[:, :real]))
            assert not variance[..., real:].any()
        kept, removed = self.loss_terms(block, x, key_padding_mask=mask), self.loss_terms(block, x[:, :real])
        assert kept.keys() == removed.keys()
        for kind in kept:
            torch.testing.assert_close(kept[kind], removed[kind])

    def loss_terms(self, block: Attention, *tokens: torch.Tensor, **masks) -> dict[str, torch.Tensor]:
        """The terms that a training pass leaves."""
        block.train()
        with sampling(block, "mean"):
            block(*tokens, **masks)
        terms = added_losses(block)
        clear_added_losses(block)
        block.eval()
        return terms

    def test_what_padded_tokens_hold_does_not_matter(self):
        block, x = self.block().eval(), self.tokens(2)
        mask = torch.zeros(2, NUM_TOKENS, dtype=torch.bool)
        mask[0, 4:] = mask[1, 2:] = True
        poisoned = x.masked_fill(mask[..., None], torch.nan)
        torch.testing.assert_close(
            block(x, key_padding_mask=mask)[~mask], block(poisoned, key_padding_mask=mask)[~mask]
        )

    def test_tokens_that_are_not_finite_are_refused_on_the_cpu(self):
        block, x = self.block().eval(), self.tokens(2)
        x[0, 1, 0] = torch.nan
        if not block.stochastic:
            assert block(x)[0].isnan().all()
            return
        with pytest.raises(ValueError, match=r"tokens: .* in 1 of \d+: leave these out by key_padding_mask"):
            block(x)
        with torch.no_grad():
            block.in_proj.weight.fill_(torch.nan)
        with pytest.raises(ValueError, match="the block's weights are not finite either"):
            block(self.tokens(2))

    def test_fully_padded_sequences_are_finite(self):
        block, x = self.block(), self.tokens(2)
        mask = torch.zeros(2, NUM_TOKENS, dtype=torch.bool)
        mask[0] = True
        x.requires_grad_()
        out = block(x, key_padding_mask=mask)
        (out.sum() + sum(added_losses(block).values(), torch.zeros(()))).backward()
        assert torch.isfinite(out).all()
        assert x.grad is not None
        assert torch.isfinite(x.grad).all()

    def test_permuting_the_tokens_permutes_the_output(self):
        if not self.is_equivariant:
            return
        block, x, order = self.block().eval(), self.tokens(2), torch.randperm(NUM_TOKENS)
        torch.testing.assert_close(block(x[:, order]), block(x)[:, order])

    def test_every_parameter_gets_a_gradient_in_one_step(self):
        block = self.block()
        model = nn.Sequential(block, nn.Flatten(), nn.Linear(NUM_TOKENS * EMBED_DIM, 3).double())
        alpha = 0.1 if getattr(block, "objective", None) else 0.0
        objective = Objective(model, CategoricalLikelihood(3), num_data=10, alpha=alpha)
        objective(self.tokens(4), torch.arange(4) % 3).backward()
        without = [
            name for name, p in block.named_parameters() if p.requires_grad and (p.grad is None or not p.grad.any())
        ]
        assert not without

    @pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
    def test_precision_is_kept(self, dtype):
        block, x = self.make().eval(), self.tokens(2)
        out = copy.deepcopy(block).to(dtype)(x.to(dtype))
        assert out.dtype == dtype
        torch.testing.assert_close(out.double(), block.double()(x), rtol=5e-3, atol=5e-3)

    @pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
    def test_autocast_forward_and_backward(self, dtype):
        block, x = self.make(), self.tokens(2).float().requires_grad_()
        with torch.autocast("cpu", dtype=dtype):
            out = block(x)
            loss = out.float().square().mean() + sum(added_losses(block).values(), torch.zeros(()))
        loss.backward()
        assert torch.isfinite(loss)
        assert all(torch.isfinite(p.grad).all() for p in block.parameters() if p.grad is not None)
        block.eval()
        with torch.autocast("cpu", dtype=dtype):
            half = block(x)
        scale = block(x).std()
        assert (half.float() - block(x)).abs().mean() < 0.05 * scale

    def test_copies_and_states_after_a_forward_pass(self):
        block, x, other = self.block(), self.tokens(2), self.block().eval()
        block(x)
        twin = copy.deepcopy(block).eval()
        other.load_state_dict(block.state_dict())
        assert torch.equal(twin(x), block.eval()(x))
        assert torch.equal(other(x), block(x))

    def test_same_seed_same_draw(self):
        block, x = self.block(), self.tokens(2)
        torch.manual_seed(1)
        first = block(x)
        torch.manual_seed(1)
        assert torch.equal(first, block(x))
        assert torch.equal(first, block(x)) != block.stochastic

    def test_added_terms_are_finite_scalars(self):
        block = self.block()
        block(self.tokens(2))
        terms = [t for t in block._added_loss_terms.values() if t is not None]
        for term in terms:
            assert isinstance(term, LossTerm)
            assert term.loss().shape == ()
            assert torch.isfinite(term.loss())
            if term.kind in ("kl", "ksvd"):
                assert term.loss() >= 0

    def test_cross_attention_is_self_attention_of_one_sequence(self):
        if not self.takes_cross:
            return
        block, x, memory = self.block().eval(), self.tokens(2), self.tokens(2, n=5)
        torch.testing.assert_close(block(x, x, x), block(x))
        torch.testing.assert_close(block(x, x), block(x))
        mask = torch.tensor([[False, False, False, True, True]]).expand(2, 5)
        out = block(x, memory, memory, key_padding_mask=mask)
        assert out.shape == x.shape
        torch.testing.assert_close(out, block(x, memory[:, :3], memory[:, :3]))

    @pytest.mark.parametrize("real", [1, 4])
    def test_masking_queries_of_cross_attention_equals_removing_them(self, real):
        if not self.takes_cross:
            return
        block, x, memory = self.block().eval(), self.tokens(2), self.tokens(2, n=5)
        mask = torch.arange(NUM_TOKENS).ge(real).expand(2, NUM_TOKENS)
        poisoned, some = x.masked_fill(mask[..., None], torch.nan), x[:, :real]
        padded = block(poisoned, memory, query_padding_mask=mask)
        torch.testing.assert_close(padded[:, :real], block(some, memory))
        if block.stochastic:
            variance = block.token_variance(x, memory, query_padding_mask=mask)
            torch.testing.assert_close(variance[..., :real], block.token_variance(some, memory))
            assert not variance[..., real:].any()
        kept = self.loss_terms(block, x, memory, query_padding_mask=mask)
        removed = self.loss_terms(block, some, memory)
        assert kept.keys() == removed.keys()
        for kind in kept:
            torch.testing.assert_close(kept[kind], removed[kind])

    def test_encoded_keys_give_what_their_tokens_give(self):
        if not self.takes_cross:
            return
        block, x, memory = self.block().eval(), self.tokens(2), self.tokens(2, n=5)
        values, padding = self.tokens(2, n=5), torch.arange(5).ge(3).expand(2, 5)
        keys = block.encode(memory, values, key_padding_mask=padding)
        of_queries = torch.arange(NUM_TOKENS).ge(6).expand(2, NUM_TOKENS)
        expected = block(x, memory, values, key_padding_mask=padding, query_padding_mask=of_queries)
        torch.testing.assert_close(block(x, keys, query_padding_mask=of_queries), expected)
        torch.testing.assert_close(block(x[:, :2], keys), expected[:, :2])  # asked again, of others
        if block.stochastic:
            variance = block.token_variance(x, memory, values, key_padding_mask=padding)
            torch.testing.assert_close(block.token_variance(x, keys), variance)

    @pytest.mark.parametrize("extra", ["value", "key_padding_mask", "attn_mask", "key_noise", "is_causal"])
    def test_what_belongs_to_encoded_keys_is_refused_beside_them(self, extra):
        if not self.takes_cross:
            return
        block, memory = self.block().eval(), self.tokens(2, n=5)
        given = True if extra == "is_causal" else memory if extra == "value" else torch.ones(2, 5).bool()
        with pytest.raises(ValueError, match="key: expected value, key_padding_mask and key_noise in the call of enc"):
            block(self.tokens(2), block.encode(memory), **{extra: given})

    def test_noise_per_key_is_refused_where_it_has_no_meaning(self):
        block, x = self.block().eval(), self.tokens(2)
        if not block.takes_key_noise:
            with pytest.raises(ValueError, match=f"key_noise: {type(block).__name__} as configured takes none"):
                block(x, key_noise=torch.ones(2, NUM_TOKENS).double())

    def test_padding_of_queries_is_checked(self):
        block, x, memory = self.block().eval(), self.tokens(2), self.tokens(2, n=5)
        with pytest.raises(ValueError, match="query_padding_mask: expected it with key"):
            block(x, query_padding_mask=torch.zeros(2, NUM_TOKENS, dtype=torch.bool))
        if self.takes_cross:
            with pytest.raises(ValueError, match=r"query_padding_mask: expected shape \(2, 7\) .*queries"):
                block(x, memory, query_padding_mask=torch.zeros(2, 5, dtype=torch.bool))

    def test_pairwise_masks_that_are_padding_are_read_as_padding(self):
        block, x = self.block().eval(), self.tokens(2)
        columns = torch.tensor([False] * 5 + [True] * 2)
        padded = block(x, key_padding_mask=columns.expand(2, NUM_TOKENS))[:, :5]
        pairs = columns.expand(NUM_TOKENS, NUM_TOKENS)
        additive = torch.zeros(NUM_TOKENS, NUM_TOKENS, dtype=torch.float64).masked_fill(pairs, -torch.inf)
        for mask in (pairs, additive, pairs.expand(2, 1, NUM_TOKENS, NUM_TOKENS)):
            torch.testing.assert_close(block(x, attn_mask=mask)[:, :5], padded)

    def test_additive_padding_is_read_as_padding(self):
        block, x = self.block().eval(), self.tokens(2)
        padding = torch.tensor([[False] * 5 + [True] * 2]).expand(2, NUM_TOKENS)
        additive = torch.zeros(2, NUM_TOKENS).double().masked_fill(padding, -torch.inf)
        expected = block(x, key_padding_mask=padding)
        torch.testing.assert_close(block(x, key_padding_mask=additive), expected)

    def test_weights_are_those_of_the_values_in_the_mean(self):
        block, x = self.block().eval(), self.tokens(2)
        out, nothing = block(x, need_weights=False)
        torch.testing.assert_close(out, block(x))
        assert nothing is None
        if not block.weighs_values:
            with pytest.raises(ValueError, match=f"need_weights: {type(block).__name__} has no weights"):
                block(x, need_weights=True)
            return
        padding = torch.tensor([[False] * 5 + [True] * 2]).expand(2, NUM_TOKENS)
        out, weights = block(x, key_padding_mask=padding, need_weights=True)
        assert weights.shape == (2, NUM_TOKENS, NUM_TOKENS)
        assert not weights[..., 5:].any()
        tokens = block.project(x, key_padding_mask=padding)
        heads = block._weights(tokens) @ tokens.v
        torch.testing.assert_close(block.merge(heads, x.dtype)[:, :5], out[:, :5])

    def test_it_takes_the_place_of_torch_attention(self):
        if not self.takes_cross:
            return
        layer = nn.TransformerEncoderLayer(EMBED_DIM, NUM_HEADS, dim_feedforward=8, dropout=0.0, batch_first=True)
        layer.self_attn, x = self.make(), self.tokens(2).float()
        padding = torch.tensor([[False] * 5 + [True] * 2]).expand(2, NUM_TOKENS)
        for mode in (True, False):
            out = layer.train(mode)(x, src_key_padding_mask=padding)
            assert torch.isfinite(out[:, :5]).all()
        torch.testing.assert_close(out[:, :5], layer(x[:, :5]), rtol=1e-4, atol=1e-4)

    def test_other_pairwise_masks_are_refused_unless_the_method_takes_them(self):
        block, x = self.block().eval(), self.tokens(2)
        mask = torch.eye(NUM_TOKENS, dtype=torch.bool)
        if block.takes_any_mask:
            assert torch.isfinite(block(x, attn_mask=mask)).all()
            return
        with pytest.raises(ValueError, match="attn_mask: expected a padding or a causal mask"):
            block(x, attn_mask=mask)

    def test_causal_rows_equal_attention_over_their_prefix(self):
        block, x = self.block().eval(), self.tokens(2)
        assert block.takes_causal == self.takes_causal
        if not self.takes_causal:
            with pytest.raises(ValueError, match="is_causal"):
                block(x, is_causal=True)
            return
        whole = block(x, is_causal=True)
        blocked = torch.ones(NUM_TOKENS, NUM_TOKENS, dtype=torch.bool).triu(1)
        torch.testing.assert_close(block(x, attn_mask=blocked), whole)
        variances = block.token_variance(x, is_causal=True) if block.stochastic else None
        for t in range(NUM_TOKENS):
            row, prefix = x[:, t : t + 1], x[:, : t + 1]
            torch.testing.assert_close(whole[:, t : t + 1], block(row, prefix, prefix))
            if variances is not None:
                torch.testing.assert_close(variances[..., t : t + 1], block.token_variance(row, prefix))

    @pytest.mark.parametrize("scale", [0.0, 1e-3, 1e3, "identical", "one"])
    def test_values_and_gradients_are_finite_in_float32(self, scale):
        n = 1 if scale == "one" else NUM_TOKENS
        x = torch.ones(2, n, EMBED_DIM) if isinstance(scale, str) else scale * self.tokens(2).float()
        self.check_finite(x)

    def check_finite(self, x: torch.Tensor) -> None:
        """Finite values and gradients, or a clear ValueError."""
        block = self.make()
        x.requires_grad_()
        try:
            out = block(x)
        except ValueError as error:
            assert re.search("not finite|not positive definite|overflows", str(error))  # noqa: PT017
            return
        (out.square().mean() + sum(added_losses(block).values(), torch.zeros(()))).backward()
        assert torch.isfinite(out).all()
        assert x.grad is not None
        assert torch.isfinite(x.grad).all()
        assert all(torch.isfinite(p.grad).all() for p in block.parameters() if p.grad is not None)

    def test_a_training_pass_compiles_without_a_graph_break(self):
        if self.is_variant:
            return
        torch._dynamo.reset()
        block, x = self.block(), self.tokens(2)
        compiled, gradients = torch.compile(block, fullgraph=True, backend="eager"), []
        for run in (block, compiled):
            torch.manual_seed(1)
            gradients.append(run(x))
            assert all(torch.isfinite(term) for term in added_losses(block).values())
        torch.testing.assert_close(*gradients)

    def test_exports_in_eval(self):
        if self.is_variant:
            return
        block, x = self.block().eval(), self.tokens(2)  # float64: in float32 both round, the paper's approximation most
        exported = torch.export.export(block, (x,)).module()
        torch.testing.assert_close(exported(x), block(x))

    @pytest.mark.parametrize(
        ("options", "message"),
        [({"embed_dim": 10, "num_heads": 3}, "num_heads dividing embed_dim"), ({"num_heads": 0}, "positive sizes")],
    )
    def test_bad_sizes_are_refused(self, options, message):
        with pytest.raises(ValueError, match=message):
            self.make(**options)

    @pytest.mark.parametrize(
        ("call", "message"),
        [
            (lambda b: b(torch.zeros(2, 3, 5).double()), r"query: expected tokens .*12.*\(2, 3, 5\)"),
            (lambda b: b(torch.zeros(12).double()), "query: expected tokens"),
            (lambda b: b(TOKENS.float()), r"query: expected torch.float64, as the weights of .*, got torch.float32"),
            (lambda b: b(TOKENS, TOKENS.long()), r"key: expected torch.float64, .*\(pass key.to\(torch.float64\)\)"),
            (lambda b: b(TOKENS, key_padding_mask=torch.zeros(2, 4).bool()), "key_padding_mask"),
            (lambda b: b(TOKENS, key_padding_mask=torch.ones(2, 3)), "key_padding_mask: expected zeros and -inf"),
            (lambda b: b(TOKENS, attn_mask=torch.zeros(2, 2).bool()), "attn_mask: expected"),
            (lambda b: b(TOKENS, TOKENS, torch.zeros(2, 4, 12).double()), "value: expected as many"),
            (lambda b: b(TOKENS, value=TOKENS), "key: expected tokens"),
        ],
    )
    def test_bad_calls_are_refused(self, call, message):
        with pytest.raises(ValueError, match=message):
            call(self.block())


class GaussianProcessContract(AttentionContract):
    """What every block with a posterior keeps beyond that; ``columns_share`` one covariance of the tokens, or not."""

    columns_share = True

    def test_posterior_is_the_distribution_of_forward_draws(self):
        block, x = self.block().eval(), self.tokens(2)
        posterior = block.posterior(x)
        assert posterior.batch_shape == (2, NUM_HEADS, EMBED_DIM // NUM_HEADS)
        assert posterior.event_shape == (NUM_TOKENS,)
        heads = posterior.mean.mT.transpose(-2, -3).flatten(-2)
        torch.testing.assert_close(block.out_proj(heads), block(x))
        variance = block.token_variance(x)
        torch.testing.assert_close(posterior.variance.mean(-2), variance, rtol=1e-6, atol=1e-7)
        if self.columns_share:
            torch.testing.assert_close(posterior.variance, variance[..., None, :].expand_as(posterior.variance))
        assert (variance >= 0).all()
        assert torch.linalg.eigvalsh(posterior.covariance_matrix).min() > -1e-9

    def test_padded_tokens_are_left_out_of_the_density(self):
        block, x = self.block().eval(), self.tokens(2, n=4)
        mask = torch.tensor([[False, False, True, True], [True, False, True, True]])
        posterior = block.posterior(x, key_padding_mask=mask)
        value = torch.randn_like(posterior.mean)
        density, repeated = posterior.log_prob(value), posterior.expand(torch.Size([3, *posterior.batch_shape]))
        torch.testing.assert_close(repeated.log_prob(value)[1], density)
        for member, keep in enumerate(~mask):
            expected = block.posterior(x[member, keep]).log_prob(value[member][..., keep])
            torch.testing.assert_close(density[member], expected, rtol=1e-6, atol=1e-6)
            torch.testing.assert_close(posterior[member].log_prob(value[member]), expected, rtol=1e-6, atol=1e-6)
            first = posterior[member, ..., :2].log_prob(value[member, ..., :2])
            torch.testing.assert_close(first, expected, rtol=1e-6, atol=1e-6)

    @pytest.mark.parametrize("mode", ["marginal", "joint"])
    def test_draws_have_the_moments_of_the_posterior(self, mode):
        block, x, count = self.block().eval(), self.tokens(1), 4000
        block.sampling, block.num_samples = mode, count
        with torch.no_grad():
            draws = block.attend(block.project(x))[:, 0].mT  # (S, h, s, n)
            posterior = block.posterior(x)
        mean, covariance = posterior.mean[0], posterior.covariance_matrix[0]  # (h, s, n), (h, s, n, n)
        scale = covariance.diagonal(dim1=-2, dim2=-1).sqrt()
        assert ((draws.mean(0) - mean).abs() <= 5 * scale / count**0.5 + 1e-9).all()
        centred = (draws - mean) / scale.clamp(min=1e-12)
        empirical = torch.einsum("zhsi,zhsj->hsij", centred, centred) / count
        expected = covariance / (scale[..., :, None] * scale[..., None, :]).clamp(min=1e-12)
        if mode == "marginal":
            expected = torch.eye(NUM_TOKENS, dtype=torch.float64).expand_as(expected)
        assert (empirical - expected).abs().max() < 6 * (2 / count) ** 0.5

    def test_draws_are_expanded_once_and_carried_on(self):
        block, x = self.block(), self.tokens(2)
        block.num_samples = 5
        first = block(x)
        assert first.shape == (5, 2, NUM_TOKENS, EMBED_DIM)
        assert not torch.equal(first[0], first[1])
        carried = nn.functional.layer_norm(first, (EMBED_DIM,))
        assert self.block()(carried).shape == first.shape

    def test_sampling_follows_training_unless_set(self):
        block = self.block()
        assert block.sampling == "marginal"
        assert block.eval().sampling == "mean"
        block.sampling = "joint"
        assert block.train().sampling == "joint"
        with pytest.raises(ValueError, match="sampling: expected one of"):
            block.sampling = "map"

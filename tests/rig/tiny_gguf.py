"""Models of random numbers that a real llama.cpp loads: tiny ones, or as slow to load as wanted."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import gguf
import numpy as np

if TYPE_CHECKING:
    from pathlib import Path

_CONTEXT: Final = 512
_SPECIAL: Final = (
    (b"<unk>", gguf.TokenType.UNKNOWN),
    (b"<s>", gguf.TokenType.CONTROL),
    (b"</s>", gguf.TokenType.CONTROL),
)


def write_model(path: Path, *, dim: int = 32, layers: int = 2) -> Path:
    """A `llama` transformer with a vocabulary of bytes; about 90 kB as it is."""
    out = gguf.GGUFWriter(path, "llama")
    tokens = _add_vocabulary(out)
    _add_shape(out, dim=dim, layers=layers, vocabulary=tokens)
    for name, rows, columns in _matrices(dim=dim, layers=layers, vocabulary=tokens):
        noise = np.random.default_rng(0).standard_normal((rows, columns), dtype=np.float32)
        out.add_tensor(f"{name}.weight", (noise * 0.05).astype(np.float16))
    norms = [f"blk.{i}.{part}_norm" for i in range(layers) for part in ("attn", "ffn")]
    for name in [*norms, "output_norm"]:
        out.add_tensor(f"{name}.weight", np.ones(dim, dtype=np.float32))
    out.write_header_to_file()
    out.write_kv_data_to_file()
    out.write_tensors_to_file()
    out.close()
    return path


def _add_vocabulary(out: gguf.GGUFWriter) -> int:
    rows = [*_SPECIAL, *((f"<0x{i:02X}>".encode(), gguf.TokenType.BYTE) for i in range(256))]
    rows += [(f"<pad{i}>".encode(), gguf.TokenType.UNUSED) for i in range(-len(rows) % 32)]
    out.add_tokenizer_model("llama")
    out.add_token_list([token for token, _ in rows])
    out.add_token_scores([0.0] * len(rows))
    out.add_token_types([int(kind) for _, kind in rows])
    out.add_unk_token_id(0)
    out.add_bos_token_id(1)
    out.add_eos_token_id(2)
    out.add_vocab_size(len(rows))
    return len(rows)


def _add_shape(out: gguf.GGUFWriter, *, dim: int, layers: int, vocabulary: int) -> None:
    out.add_name(f"random {dim} x {layers} x {vocabulary}")
    out.add_file_type(gguf.LlamaFileType.MOSTLY_F16)
    out.add_context_length(_CONTEXT)
    out.add_embedding_length(dim)
    out.add_block_count(layers)
    out.add_feed_forward_length(dim * 2)
    out.add_head_count(2)
    out.add_head_count_kv(2)
    out.add_layer_norm_rms_eps(1e-5)
    out.add_rope_dimension_count(dim // 2)


def _matrices(*, dim: int, layers: int, vocabulary: int) -> list[tuple[str, int, int]]:
    named = [("token_embd", vocabulary, dim), ("output", vocabulary, dim)]
    for i in range(layers):
        attention = ("attn_q", "attn_k", "attn_v", "attn_output")
        named += [(f"blk.{i}.{part}", dim, dim) for part in attention]
        named += [(f"blk.{i}.{part}", dim * 2, dim) for part in ("ffn_gate", "ffn_up")]
        named.append((f"blk.{i}.ffn_down", dim, dim * 2))
    return named

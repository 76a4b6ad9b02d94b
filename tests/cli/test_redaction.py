"""Planted secrets are in no byte of a recording."""
import rlk
from rlk import Case, clean_env

SECRETS = [f"S3cr3t{i:02d}" for i in range(20)]


class Redaction(Case):
    def test_no_byte(self):
        s = iter(SECRETS)
        env = clean_env(HF_TOKEN=next(s), WANDB_API_KEY=next(s), AWS_SECRET_ACCESS_KEY=next(s), PRIVATE=next(s),
                        NCCL_PROXY=f"http://user:{next(s)}@host", VLLM_ARGS=f"--api-key {next(s)} --x",
                        RAY_TOKEN=next(s), TORCH_JSON='{"hub_token": "%s"}' % next(s), CUDA_PASSWORD=next(s))
        argv = ["sh", "-c", f"API_KEY={next(s)}; true", "x", "--token", next(s), f"--hub-key={next(s)}", f"Secret={next(s)} b",
                f"https://{next(s)}@host/x", f"git clone https://u:{next(s)}@host", '{"my_password":"%s"}' % next(s),
                f"Authorization: Bearer {next(s)}", f"hf_{next(s)}abcdefghijklmn", f"https://h/?sig=1&x_signature={next(s)}"]
        self.expect(self.rec("run", "-o", "r", "--", *argv, env=env), 0)
        planted = SECRETS[:len(SECRETS) - len(list(s))]
        self.assertGreaterEqual(len(planted), 19)
        found = []
        for path in (self.dir / "r.rlk").rglob("*"):
            if path.is_file():
                data = path.read_bytes()
                found += [(path.name, secret) for secret in planted if secret.encode() in data]
        self.assertEqual(found, [])

    def test_the_check_can_fail(self):
        """What is no secret by its name is written down, and what the command is for stays readable."""
        self.expect(self.rec("run", "-o", "r", "--", "sh", "-c", "true", "--note", SECRETS[0], env=clean_env(NCCL_ALGO="Ring")), 0)
        manifest = self.manifest("r.rlk")
        self.assertEqual(manifest["argv"], ["sh", "-c", "true", "--note", SECRETS[0]])
        self.assertEqual(manifest["env"]["NCCL_ALGO"], "Ring")
        self.assertNotIn("HOME", manifest["env"])
        self.assertIn(SECRETS[0].encode(), (self.dir / "r.rlk/manifest.json").read_bytes())


if __name__ == "__main__":
    rlk.main()

